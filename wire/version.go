package wire

import "time"

// Version is the wire version: the first byte of every handshake, and part of the
// Noise prologue. A second cipher suite or an incompatible message is a new version.
const Version = 1

// VersionRange is what an end point can speak, oldest and newest. Each side sends
// its own inside the handshake, checks that the version in use is the highest that both
// have, and ends the connection otherwise (no downgrade by whoever carries the bytes).
type VersionRange struct {
	_   struct{} `cbor:",toarray"`
	Min uint8
	Max uint8
}

// Versions is the range of this build.
var Versions = VersionRange{Min: Version, Max: Version}

// Agrees reports whether inUse is the highest version that r and s share.
func (r VersionRange) Agrees(s VersionRange, inUse uint8) bool {
	top := min(r.Max, s.Max)
	return r.Min <= r.Max && s.Min <= s.Max && top >= max(r.Min, s.Min) && top == inUse
}

// ALPN is the TLS application protocol of the hop (RFC 7301).
const ALPN = "postern/1"

// Limits of the protocol. They hold before anything is allocated; those that a peer
// may lower are told to it in a welcome, and enforced locally all the same.
const (
	MaxHeader        = 1 << 10 // bytes of one frame at the head of a stream
	MaxHello         = 4 << 10 // bytes of a hello in the handshake's third message
	MaxMessage       = 1 << 20 // bytes of any message but Start
	MaxStart         = 4 << 20 // bytes of a Start message: it may come before welcome, so it is no setting
	MaxStartElements = 131072  // elements of argv, and of the environment
	MaxChunk         = 32 << 10
	MaxText          = 1 << 10 // bytes of any text meant for people

	// InputWindow is how much stdin a client may send before Started told it more.
	InputWindow = 64 << 10
	// InputQueue is how much stdin an executor keeps that the command has not read yet:
	// one window of a path of 100 ms at 20 MB/s, which is what the windows of its two legs carry.
	InputQueue = 2 << 20
	// MaxOwner is the longest name of a principal, bytes.
	MaxOwner = 255
	// OutputWindow is how much unacknowledged output an executor keeps per exec
	// before it stops reading from the command.
	OutputWindow = 4 << 20
	// OutputKeep is how much of the newest acknowledged output stays for a later attach.
	OutputKeep = 1 << 20
)

// Times of the protocol.
const (
	HandshakeTimeout = 10 * time.Second // a whole end-to-end handshake
	HopTimeout       = 5 * time.Second  // from accept to the third message on the hop
	HeaderTimeout    = 5 * time.Second  // a stream's first frame
	OpeningDeadline  = 30 * time.Second // how late the first message of a channel may be
	PingInterval     = 15 * time.Second // on every circuit, both ways
	PingLag          = 60 * time.Second // a Ping this far behind the session clock ends the circuit
	PingSilence      = 45 * time.Second // and so does this long without one

	// AckDelay is how long an Ack or InputAck waits for more to acknowledge that nothing depends on yet: as long as QUIC's own (RFC 9000, 18.2).
	AckDelay = 25 * time.Millisecond

	ExecutorHeartbeat = 10 * time.Second // on the hop, plus or minus a tenth
	ClientHeartbeat   = 5 * time.Second
	ExecutorIdle      = 30 * time.Second // QUIC idle timeout
	ClientIdle        = 15 * time.Second
	IncumbentTimeout  = 2 * time.Second // for the answer of an executor whose key somebody else presents

	SessionAge       = time.Hour        // new channels are allowed for this long
	SessionRenew     = 30 * time.Minute // from here on the client renews in the background
	SessionIdle      = 10 * time.Minute
	SessionOverlap   = 30 * time.Second // a replaced session still takes new channels
	SessionChannels  = 65536
	SessionWindow    = 1024 // how far behind the highest channel number a new one may be
	SessionsPerKey   = 1024
	DrainDeadline    = 2 * time.Second // output after the main process has ended
	DefaultKillAfter = 5 * time.Second // between TERM and KILL
	DefaultGrace     = 2 * time.Minute // a detached exec lives on
	MaxGrace         = 24 * time.Hour
)
