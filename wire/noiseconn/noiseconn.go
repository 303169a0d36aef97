// Package noiseconn runs the Noise handshake of postern over any byte stream and carries
// messages in its records afterwards. Both hops use it: a peer and its relay, and, through
// the relay, a client and an executor. It is the only package that calls flynn/noise.
//
// It knows keys and bytes. Who is admitted is decided by its caller, between the third
// message of the handshake and the first record: a [Pending] can only be accepted or refused.
//
// Data flow and ownership. [Dial] and [Accept] drive the handshake (handshake.go has the
// states, each a type of its own that the next step consumes; kem.go the post-quantum part) and
// end in a [Conn] (conn.go), which seals and opens records (record.go) and is owned by
// whoever asked for it. An end-to-end handshake also founds a [Session] (session.go): the
// secret from which later circuits of the same client and executor derive their keys without
// another handshake (channel.go). A responder that replaces its key has two for a time, and answers
// with the one that the first message was made for (accept.go).
//
// Sources: the Noise protocol framework revision 34, sections 5, 7.3, 9 and 11.3;
// FIPS 203 for ML-KEM; PROTOCOL.md for everything that is ours.
package noiseconn

import (
	"github.com/flynn/noise"

	"github.com/postern-relay/postern/wire"
)

// Suite is the one Noise protocol that postern speaks. A second one is a new wire.Version.
const Suite = "Noise_XKpsk3_25519_AESGCM_SHA256"

// suiteLabel names the whole key agreement in the prologue.
const suiteLabel = Suite + "+MLKEM768"

// HopPrologue binds a handshake to the connection it runs on: the channel binding is what both ends
// exported from TLS (RFC 9266). A middle that terminates TLS has another one.
func HopPrologue(binding []byte) []byte {
	return prologue("postern/hop", binding)
}

// EndToEndPrologue holds nothing of the relay's: the identity of an executor must not
// depend on the way to it.
func EndToEndPrologue() []byte {
	return prologue("postern/e2e")
}

func prologue(label string, more ...[]byte) []byte {
	var b []byte
	parts := append([][]byte{[]byte(label), {wire.Version}, []byte(suiteLabel)}, more...)
	for _, p := range parts {
		b = append(b, byte(len(p)>>8), byte(len(p)))
		b = append(b, p...)
	}
	return b
}

// pattern is XK. The modifier for the pre-shared key appends to the message lists of the
// pattern it is given, so it never gets the library's own.
func pattern() noise.HandshakePattern {
	p := noise.HandshakeXK
	p.InitiatorPreMessages = append([]noise.MessagePattern(nil), p.InitiatorPreMessages...)
	p.ResponderPreMessages = append([]noise.MessagePattern(nil), p.ResponderPreMessages...)
	messages := make([][]noise.MessagePattern, len(p.Messages))
	for i, m := range p.Messages {
		messages[i] = append([]noise.MessagePattern(nil), m...)
	}
	p.Messages = messages
	return p
}
