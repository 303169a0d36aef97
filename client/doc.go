// Package client reaches executors through a relay and runs commands on them. It is made to
// be imported by other programs: it has no global state, starts no process and prints nothing.
//
// It does not decide what a command may do: paths, environment and sandbox belong to the
// executor, and the client can only ask for less.
//
// Data flow and ownership, from the outside in:
//
//	Client (client.go)  a key and a relay; one connection, made anew when it is lost (link.go)
//	  Remote (remote.go)  the ExecBackend of one executor: one session, renewed
//	                      in the background (session.go); a circuit for each exec
//	    RemoteProcess (process.go)  a handle; mirror image of executor's conversation:
//	                      one goroutine reads, one writes; received.go holds unread output
//	  Cmd (cmd.go)  a command with files, in the manner of os/exec, on any ExecBackend
//
// Start at [Dial] and [Environment.Command].
package client
