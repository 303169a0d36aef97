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
//	    LocalProcess (process.go)  a handle: controls or views one exec
//	Local (local.go)  the backend of one principal
//	  table (table.go)  every exec by principal and id; starts once
//	    execution (execution.go)  one command: pipes, log, stdin, timers, end
//	      outputLog (log.go), inputQueue (input.go)
//	      Runner (runner.go)  makes the process: sandboxRunner (sandbox.go)
//
// An execution outlives handles, conversations, sessions and connections. A conversation that ends
// only detaches its handle; then the detach grace runs. Start at Executor.Run, or at NewLocal for
// commands without a network.
package executor
