// Package wire holds what the three parties of postern say to each other: the
// messages and their CBOR encoding, the codes, the limits, and the two interfaces
// ([ExecBackend], [ExecProcess]) that a local and a remote command share.
//
// It opens no connection and starts no process. Noise records live in
// wire/noiseconn, QUIC in wire/quicconn; both carry the bytes made here.
//
// Data flow. There are two conversations. A peer and its relay speak on the first
// stream of their connection (hop.go: [HopHello], [HopWelcome], [HopPing], in Noise
// records) and put one frame at the head of every further stream (circuit.go: [Dial],
// [Incoming], [DialReply]). A client and an executor speak through a circuit
// (session.go: [Hello], [Welcome]; exec messages in start.go and process.go), in Noise
// records that the relay cannot open. One circuit is one exec: Start or Attach, answered by
// Started, then Output up to Exit from the executor and Input, Ack, Signal, Resize and
// Terminate from the client.
//
// Read PROTOCOL.md for the byte layouts and the rules, postern.cddl for the schema,
// then exec.go for what callers see, then the messages.
package wire
