// Command bench measures postern beside OpenSSH in the same shape, on one machine:
//
//	go run ./cmd/bench
//
// # Topology
//
// Both sides have an executor that nobody dials, a host in the middle that both ends dial, and a client. All
// are separate processes on loopback.
//
//	postern   client ----QUIC----> relay      <----QUIC---- executor             the product's own binary
//	ssh       client -ProxyJump--> jump sshd  <---ssh -R--- executor's sshd      keys and settings of its own
//
// In neither can the one in the middle read what passes. The ssh side is there several times, each with its own
// processes: as it comes; with the classical key exchange on every hop; with AES-GCM on every hop; and tuned, which
// has both and no Nagle (peer_ssh.go says how). Its warm measures go through a ControlMaster. On the "delayed" path
// every leg to the middle goes through a forwarder that adds round-trip time (delay.go).
//
// ssh runs commands through a login shell and without a sandbox; postern runs them without a shell, in a
// sandbox of their own (workspace-write), after their start is on the executor's disk. Both are what users get.
//
// # How to read the numbers
//
// The sides take turns, in random order within each round, so that a busy machine disturbs all alike. Before each turn
// there is a tenth of a second for what the one before has left behind. The first round is not counted. A ratio is postern's figure divided by the peer's in the same round; its median is given with the
// tenth and ninetieth percentile of the rounds. Ratios repeat from run to run and from machine to machine; times do
// less so. Targets are about ratios for that reason, but for what the relay may use.
//
// # Growth
//
// -growth leaves ssh out and looks at what one more costs as there are ever more: connections of idle executors, execs that
// an executor remembers, commands that run. What should not depend on the number has the figure at the largest
// divided by that at a hundredth of it. growth.go has the list and its table, growth_*.go each one.
//
// # Where to look
//
// measures.go has the list, measure_*.go each one. rounds.go runs them and stats.go does the sums; targets.go and report.go
// make the table. peer_postern.go and peer_ssh.go bring the two sides up; process.go and proc.go are what they need
// of the system.
package main
