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
//	                      (start.go), and for each question (control.go)
//	    RemoteProcess (process.go)  a handle, which outlives circuits. It owns what must not be
//	                      lost with one: unread output (received.go, otherlog.go), input that
//	                      is not confirmed (input.go), requests without an answer
//	                      (requests.go). One goroutine goes from circuit to circuit
//	                      (resume.go, loss.go) and reads each one.
//	      conversation (conversation.go)  one circuit of it: the mirror image of executor's,
//	                      with how far it has got, and a goroutine that writes
//	  directory (directory.go, question.go)  executors and join tokens of the client's tenant: a stream
//	                      to the relay itself for each request, closed when its Reply is read
//	  Observer (observer.go)  is told what happens, for metrics; package clientprom has one for Prometheus
//	  Cmd (cmd.go)  a command with files, in the manner of os/exec, on any ExecBackend
//
// # Lost links
//
// An exec lives on the executor, and a handle on it outlives whatever is in between: a relay or
// executor that restarts, a laptop that changes networks. The handle comes back by itself, and its
// callers wait meanwhile; no byte is lost or doubled in either direction, and a Start whose answer
// was lost is repeated without running anything twice. [Config] has the time that this may
// take (Patience) and a function that is told (Interrupted). Only then, or when the executor itself says
// that there is nothing to come back to, a call fails: with wire.ErrLost, or with an error of
// wire.CodeUnknown, nobody here knows the outcome.
//
// # Directory and keys
//
// What the relay lists is the relay's word. [Client.Executors] passes it on as it is, with the proof of each
// key, and whoever holds the secret of the token checks that; this package pins nothing by itself.
//
// Keys that are pinned change only by the word of the pinned key. A relay names its next key in its welcome:
// the link pins that for every later connection, and never the old one again (relaykey.go). An executor
// names its next key in a Welcome, and the Remote then asks the next key, by a circuit and a handshake of
// their own, whether it names the old one (replaced.go); the Remote itself stays with its key. Both are
// told to functions of [Config], which write down what the program pins next time. They run in goroutines
// that hold no locks, and that Close lets finish for a moment (linger.go): a program that runs
// one short command gets the news too. Which keys were told is kept by the Client and the Remote, so
// a program that wants to be told once has one Client.
//
// Start at [Dial] and [Environment.Command].
package client
