package noiseconn

import (
	"context"
	"crypto/mlkem"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// First bytes on a stream.
const (
	firstRefusal   = 0x00 // unauthenticated, then a frame
	firstHandshake = wire.Version
	firstChannel   = 0x02
)

// InitiatorConfig is the dialling side of a handshake.
type InitiatorConfig struct {
	Static   *keys.PrivateKey
	Peer     [32]byte // the key that the responder must prove
	Prologue []byte   // HopPrologue or EndToEndPrologue
	Clock    Clock    // for the session; nil: the boot clock

	random io.Reader                  // tests only
	kem    *mlkem.DecapsulationKey768 // tests only
}

// Initiator has verified the responder, and can send its own proof.
type Initiator struct {
	stream wire.Stream
	state  *gotM2
	clock  Clock
}

// Dial sends the first message and verifies the second. The context bounds it. On an error
// the stream is of no more use; the caller resets it.
func Dial(ctx context.Context, s wire.Stream, cfg InitiatorConfig) (*Initiator, error) {
	state, m1, err := startInitiator(cfg.Static, cfg.Peer, cfg.Prologue, cfg.random, cfg.kem)
	if err != nil {
		return nil, err
	}
	stop := bound(ctx, s)
	defer stop()
	if _, err := s.Write(handshakeFrame([]byte{firstHandshake}, m1)); err != nil {
		return nil, stopped(ctx, err)
	}
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		return nil, stopped(ctx, cut(err))
	}
	switch first[0] {
	case firstHandshake:
	case firstRefusal:
		return nil, refusedError(s)
	default:
		return nil, wire.Errorf(wire.CodeVersion, "the peer speaks wire version %d, this build %d", first[0], wire.Version)
	}
	m2, err := readHandshake(s, m2Size, m2Size)
	if err != nil {
		return nil, stopped(ctx, err)
	}
	next, err := state.readM2(m2)
	if err != nil {
		return nil, err
	}
	return &Initiator{stream: s, state: next, clock: cfg.Clock}, nil
}

// Epoch is the responder's state epoch, zero on the hop.
func (i *Initiator) Epoch() wire.ID { return i.state.epoch }

// Finish sends the third message with hello in it. Records may be sent at once; the
// responder's first one says whether it accepts.
func (i *Initiator) Finish(hello wire.Message) (*Conn, error) {
	b, err := wire.Encode(hello)
	if err != nil {
		return nil, err
	}
	m3, sec, err := i.state.writeM3(b)
	if err != nil {
		return nil, err
	}
	at := i.clock.now()
	if _, err := i.stream.Write(handshakeFrame(nil, m3)); err != nil {
		return nil, err
	}
	return handshakeConn(i.stream, sec, i.clock, at), nil
}

// handshakeConn makes channel 0 from the handshake's own keys.
func handshakeConn(s wire.Stream, sec *secrets, clock Clock, at time.Duration) *Conn {
	c := newConn(s, clock, newRecordCipher(sec.send), newRecordCipher(sec.receive))
	c.secrets, c.founded = sec, at
	return c
}

func handshakeFrame(first, msg []byte) []byte {
	b := append(make([]byte, 0, len(first)+2+len(msg)), first...)
	return append(binary.BigEndian.AppendUint16(b, uint16(len(msg))), msg...)
}

func readHandshake(r io.Reader, least, most int) ([]byte, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, cut(err)
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n < least || n > most {
		return nil, fmt.Errorf("%w: message of %d bytes", errHandshake, n)
	}
	b := make([]byte, n)
	_, err := io.ReadFull(r, b)
	return b, cut(err)
}

// bound makes the context's end a deadline of the stream, until stop is called.
func bound(ctx context.Context, s wire.Stream) (stop func()) {
	if d, ok := ctx.Deadline(); ok {
		s.SetReadDeadline(d)
		s.SetWriteDeadline(d)
	}
	off := context.AfterFunc(ctx, func() {
		past := time.Unix(1, 0)
		s.SetReadDeadline(past)
		s.SetWriteDeadline(past)
	})
	return func() {
		if off() {
			s.SetReadDeadline(time.Time{})
			s.SetWriteDeadline(time.Time{})
		}
	}
}

// stopped prefers the context's reason to the deadline that it caused.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
