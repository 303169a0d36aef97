// Package executor runs commands for clients on a machine that nothing can dial. It keeps
// a connection to a relay, answers the end-to-end handshakes that arrive through it, and is the
// only one that decides who may run what here: by its own authorized_clients, its own
// workspaces and its own widest sandbox mode, never by what a relay or a client says.
//
// It does not confine processes itself (package sandbox does) and never sees a network
// address of a client.
//
// Data flow and ownership, from the outside in:
//
//	Executor (executor.go)  stays registered; one goroutine per circuit
//	  sessions (sessions.go)  what is kept of handshakes; independent of connections
//	  conversation (conversation.go)  one circuit: a reader, and a writer for one handle
//	    control (control.go)  or a question, or an act without a handle
//	    LocalProcess (process.go)  a handle: controls or views one exec
//	Local (local.go)  the backend of one caller
//	  gate (gate.go)  what the caller's line lets it start: of a list of commands (forced.go), and
//	                    until when (expiry.go)
//	  table (table.go)  every exec by id and principal; starts once (start.go), is looked
//	                    up (lookup.go), and forgets what is too old (retention.go)
//	    journal (package journal)  ids and outcomes on disk: written before a spawn and before
//	                    anybody can read an Exit
//	    execution (execution.go)  one command: pipes, log, stdin, timers, end; what is
//	                    done when its controller is gone (absence.go)
//	      execlog.Log (package execlog), inputQueue (input.go)
//	      Runner (runner.go)  makes the process: sandboxRunner (sandbox.go)
//
// # Who may start what
//
// A client's line in authorized_clients is a ceiling. A Start is decided in this order, by the file and the time of that
// moment, and the first refusal ends it:
//
//  1. The key is listed, and its line has not expired: else unauthorized.
//  2. The id is known to its principal, or its key started it: the answer of then, whatever the line says now. A line that
//     narrows anything gets no handle on what another key started.
//  3. The key runs fewer commands than its max-execs, and the executor fewer than its own limit: else busy.
//  4. A terminal, variables, and with command= words, argv[0], folder and file are what the line allows: else policy. What
//     runs is the line's file, and max-time bounds the time limit.
//  5. The sandbox, what it sees and may write, and the limits are the meet of owner, line and request; a network beyond
//     owner or line is refused. Below the machine's network and the full view there is always a sandbox.
//  6. Only then is the start recorded, and the command made.
//
// A line that is narrowed applies from the next Start on. One that is removed or expires ends its sessions and commands.
// Callers without a key, which are this process itself, have no line.
//
// A command with an allow-list reaches the network through a proxy (package sandbox/egress) that this process runs for it alone, or for
// its network session, on a listener inside the command's namespace. The proxy ends with that listener. When a command has failed, its
// Exit says what the proxy and the sandbox have refused it.
//
// An execution outlives handles, conversations, sessions and connections. A conversation that ends
// only detaches its handle; then the detach grace runs. When a command has ended its output
// goes to files, and once nobody reads it the execution is gone: the table keeps an entry, and makes
// an execution of it again for whoever asks, in this process or in a later one.
//
// When the executor ends in good order it ends its commands and records how. When it is killed they
// die with it, and what their end was stays unknown: that is recorded at the next start. DURABILITY.md
// says what is promised, and by which test.
//
// Start at Executor.Run, or at NewLocal for commands without a network.
package executor
