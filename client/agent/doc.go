// Package agent is the connection that a user's programs share in the background: one process keeps a client's
// connection to its relay and its sessions with executors, and lends them over a unix socket to programs that run for
// one command, such as postern exec. What ControlMaster is for ssh.
//
// Data flow. Each request is a connection to the socket: one request frame, one answer frame, and for a circuit the bytes of
// the circuit in frames (stream.go), which the agent copies to and from a stream of its connection to the relay. A program borrows a
// part of the agent's session with an executor (client.Loan) and opens channels of it on such circuits, so that what a command says
// is sealed and opened in the program, and Start needs one round trip. When the agent goes away the program comes back by
// itself, over a connection of its own.
//
// Who may. The socket is its user's alone, and both ends ask the kernel who the other one is. A program names its key, its relay and
// the executor's key from its own files; an agent with another key or of another build refuses and ends (Server.Retired). So an agent holds
// and gives no more than the client key on the same disk does.
//
// Start at Server.Serve and New.
package agent
