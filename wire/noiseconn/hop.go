package noiseconn

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// Hop is a peer's admitted connection to its relay: the transport may now open and
// accept circuits. The control stream carries heartbeats.
type Hop struct {
	Transport wire.Transport
	Welcome   wire.HopWelcome
	// Notice is told what the relay says that has no effect on the connection. Set it before Run, whose
	// reading goroutine calls it, one call after the other: nothing else is read meanwhile. Nil: ignored.
	Notice func(wire.HopNotice)
	// NextKey is told the key that is going to replace the relay's, as Welcome.NextRelay has it for those who come later; see
	// Notice.
	NextKey func(*wire.Bytes32)
	conn    *Conn

	goaway atomic.Pointer[wire.HopGoaway]
}

// Join runs the hop handshake on t's first stream, with the channel binding in its
// prologue so that it authenticates the whole connection. The context bounds it. A
// refusal of the relay's is a *wire.Error. On an error t is left open for the caller to close.
func Join(ctx context.Context, t wire.Transport, static *keys.PrivateKey, relay keys.PublicKey, hello *wire.HopHello) (*Hop, error) {
	j, err := BeginJoin(ctx, t, static, relay, hello)
	if err != nil {
		return nil, err
	}
	return j.Welcome(ctx)
}

// Joining is a hop handshake whose last message is on its way: the relay has proven its key, and decides about ours.
type Joining struct {
	transport wire.Transport
	stream    wire.Stream
	conn      *Conn
}

// BeginJoin is the part of Join before the relay's decision. Streams that are opened from then on are looked at when, and if, the relay has
// admitted the connection.
func BeginJoin(ctx context.Context, t wire.Transport, static *keys.PrivateKey, relay keys.PublicKey, hello *wire.HopHello) (*Joining, error) {
	if len(t.Binding()) == 0 {
		return nil, errors.New("transport without a channel binding cannot be authenticated")
	}
	s, err := t.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	i, err := Dial(ctx, s, InitiatorConfig{Static: static, Peer: relay.Raw(), Prologue: HopPrologue(t.Binding())})
	if err != nil {
		if errors.Is(err, errHandshake) {
			err = fmt.Errorf("the relay does not have the key %s: %w", relay, err)
		}
		return nil, err
	}
	c, err := i.Finish(hello)
	if err != nil {
		return nil, err
	}
	c.LimitMessages(wire.MaxHello)
	return &Joining{t, s, c}, nil
}

// Welcome waits for the relay's decision. The context bounds it.
func (j *Joining) Welcome(ctx context.Context) (*Hop, error) {
	stop := bound(ctx, j.stream)
	defer stop()
	m, err := j.conn.Recv()
	if err != nil {
		return nil, stopped(ctx, err)
	}
	switch m := m.(type) {
	case *wire.HopWelcome:
		if !m.Versions.Agrees(wire.Versions, wire.Version) {
			return nil, wire.Errorf(wire.CodeVersion, "the relay speaks wire versions %d to %d, this build %d to %d",
				m.Versions.Min, m.Versions.Max, wire.Versions.Min, wire.Versions.Max)
		}
		return &Hop{Transport: j.transport, Welcome: *m, conn: j.conn}, nil
	case *wire.Refused:
		return nil, m.Err()
	default:
		return nil, wire.Errorf(wire.CodeProtocol, "the relay answered with a %T", m)
	}
}

// Leaving is what the relay has said about the end of the connection, as the error with which to
// come back: nothing new should begin here. Nil: it has not.
func (h *Hop) Leaving() *wire.Error {
	if m := h.goaway.Load(); m != nil {
		return m.Err()
	}
	return nil
}

// Run sends a heartbeat every interval, give or take a tenth, and answers the relay's,
// until the context or the connection ends. Three unanswered heartbeats are an end.
func (h *Hop) Run(ctx context.Context, interval time.Duration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var unanswered atomic.Int32
	received := make(chan struct{})
	go func() {
		defer close(received)
		cancel(h.receive(&unanswered))
	}()
	defer func() {
		h.conn.Reset(wire.CodeShutdown)
		<-received
	}()
	for number := uint64(1); ; number++ {
		select {
		case <-time.After(interval + time.Duration((rand.Float64()-0.5)*0.2*float64(interval))):
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-h.Transport.Context().Done():
			return context.Cause(h.Transport.Context())
		}
		if unanswered.Add(1) > 3 {
			return fmt.Errorf("the relay does not answer heartbeats: %w", wire.ErrLost)
		}
		if err := h.conn.Send(&wire.HopPing{Number: number}); err != nil {
			return err
		}
	}
}

func (h *Hop) receive(unanswered *atomic.Int32) error {
	for {
		m, err := h.conn.Recv()
		if _, ok := errors.AsType[*wire.UnsupportedError](err); ok {
			continue // a newer relay says more; none of it is needed
		}
		if err == io.EOF {
			return &wire.Error{Code: wire.CodeShutdown, Text: "the relay ended the connection"}
		}
		if err != nil {
			return err
		}
		switch m := m.(type) {
		case *wire.HopPong:
			unanswered.Store(0)
		case *wire.HopPing:
			if err := h.conn.Send(&wire.HopPong{Number: m.Number}); err != nil {
				return err
			}
		case *wire.HopGoaway:
			h.goaway.Store(m)
		case *wire.HopNextKey:
			if h.NextKey != nil {
				h.NextKey(&m.Key)
			}
		case *wire.HopNotice:
			if h.Notice != nil {
				h.Notice(*m)
			}
		case *wire.Refused:
			return m.Err()
		default:
			return wire.Errorf(wire.CodeProtocol, "the relay sent a %T", m)
		}
	}
}
