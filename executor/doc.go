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
//	  table (table.go)  every exec by id and principal; starts once (start.go), is looked
//	                    up (lookup.go), and forgets what is too old (retention.go)
//	    journal (package journal)  ids and outcomes on disk: written before a spawn and before
//	                    anybody can read an Exit
//	    execution (execution.go)  one command: pipes, log, stdin, timers, end; what is
//	                    done when its controller is gone (absence.go)
//	      execlog.Log (package execlog), inputQueue (input.go)
//	      Runner (runner.go)  makes the process: sandboxRunner (sandbox.go)
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
