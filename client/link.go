package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// link is the connection to the relay. It is made when somebody needs it, and made anew
// when the last one has ended; several callers share one attempt.
type link struct {
	cfg      Config
	instance wire.ID
	ctx      context.Context // ends with close
	cancel   context.CancelCauseFunc
	running  sync.WaitGroup
	news     *lingering // of the relay's key
	pins     relayPins

	mu      sync.Mutex
	current *noiseconn.Hop
	dialing *attempt
}

type attempt struct {
	done chan struct{}
	hop  *noiseconn.Hop
	err  error
	// early is closed when transport is one on which the relay decides; it may become another one. transport is guarded by link.mu.
	early     chan struct{}
	transport wire.Transport
}

func newLink(cfg Config) *link {
	ctx, cancel := context.WithCancelCause(context.Background())
	l := &link{cfg: cfg, instance: wire.ID(wire.NewExecID()), ctx: ctx, cancel: cancel, news: newLingering()}
	l.pins = relayPins{tell: l.news, news: cfg.RelayKeyReplaced, pins: []keys.PublicKey{cfg.Relay.Key}}
	return l
}

// hop is the standing connection, or a new one.
func (l *link) hop(ctx context.Context) (*noiseconn.Hop, error) {
	h, a, err := l.hopOrAttempt()
	if a == nil {
		return h, err
	}
	return l.outcome(ctx, a)
}

// hopOrAttempt is the standing connection, or the attempt at one that is under way from now on.
func (l *link) hopOrAttempt() (*noiseconn.Hop, *attempt, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx.Err() != nil {
		return nil, nil, wire.ErrClosed
	}
	if h := l.current; h != nil && h.Transport.Context().Err() == nil && h.Leaving() == nil {
		return h, nil, nil
	}
	a := l.dialing
	if a == nil {
		a = &attempt{done: make(chan struct{}), early: make(chan struct{})}
		l.dialing = a
		l.running.Go(func() { l.dial(a) })
	}
	return nil, a, nil
}

// outcome waits for the end of an attempt.
func (l *link) outcome(ctx context.Context, a *attempt) (*noiseconn.Hop, error) {
	select {
	case <-a.done:
		return a.hop, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to relay %s: %w", l.cfg.Relay.Address(), context.Cause(ctx))
	}
}

// dial makes one connection on behalf of everybody who waits, so no single caller's
// context bounds it.
func (l *link) dial(a *attempt) {
	ctx, cancel := context.WithTimeout(l.ctx, wire.HandshakeTimeout)
	defer cancel()
	a.hop, a.err = l.connectPatiently(ctx, a)
	orUnobserved(l.cfg.Observer).Connected(a.err)
	if a.err != nil {
		a.err = fmt.Errorf("connect to relay %s: %w", l.cfg.Relay.Address(), a.err)
	}
	l.mu.Lock()
	l.dialing, l.current = nil, a.hop
	l.mu.Unlock()
	close(a.done)
	if a.err != nil {
		return
	}
	err := a.hop.Run(l.ctx, wire.ClientHeartbeat)
	l.cfg.Log.Debug("relay connection ended", "err", err)
	a.hop.Transport.Close(wire.CodeShutdown, "")
}

// connectPatiently tries again where a relay under load dropped the attempt or asked for
// patience, for as long as the context allows, and once where nothing came back: a relay, or a
// link, may be held up for as long as one dial waits. Nothing depends on how often it tries.
func (l *link) connectPatiently(ctx context.Context, a *attempt) (*noiseconn.Hop, error) {
	const step = 100 * time.Millisecond
	silent := false
	for wait := step; ; wait *= 2 {
		hop, err := l.connect(ctx, a)
		if err == nil || ctx.Err() != nil {
			return hop, err
		}
		pause := rand.N(wait)
		switch e, ok := errors.AsType[*wire.Error](err); {
		case ok && (e.Code == wire.CodeBusy || e.Code == wire.CodeShutdown):
			pause += e.RetryAfter
		case ok && (e.Code == wire.CodeProtocol || e.Code == wire.CodeVersion || e.Code == wire.CodeUnauthorized):
			return nil, err // the next answer would be the same, also where the relay closed the connection with it
		case errors.Is(err, quicconn.ErrNoAnswer) && !silent:
			silent = true
		case !errors.Is(err, wire.ErrLost):
			return nil, err
		}
		if d, _ := ctx.Deadline(); time.Until(d) < pause {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (l *link) connect(ctx context.Context, a *attempt) (*noiseconn.Hop, error) {
	t, err := l.cfg.Connect(ctx)
	if err != nil {
		return nil, err
	}
	pinned := l.pins.current()
	joining, err := noiseconn.BeginJoin(ctx, t, l.cfg.Key, pinned, &wire.HopHello{
		Role: wire.RoleClient, Versions: wire.Versions, Instance: l.instance, Software: l.cfg.Software,
	})
	var hop *noiseconn.Hop
	if err == nil {
		l.begun(a, t)
		hop, err = joining.Welcome(ctx)
	}
	if err != nil {
		t.Close(wire.CodeCancelled, "")
		return nil, err
	}
	hop.NextKey = func(next *wire.Bytes32) {
		if next != nil && l.pins.announced(pinned, *next) {
			l.cfg.Log.Debug("relay replaces its key", "relay", pinned, "next", l.pins.current())
		}
	}
	hop.NextKey(hop.Welcome.NextRelay)
	return hop, nil
}

// begun tells that the relay decides about a connection.
func (l *link) begun(a *attempt, t wire.Transport) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if a.transport == nil {
		close(a.early)
	}
	a.transport = t
}

// openCircuit asks the relay for a circuit to an executor. The relay's answer is read with the
// first bytes from the executor: what the caller sends may follow the request at once, and all of it the handshake with the relay.
func (l *link) openCircuit(ctx context.Context, executor keys.PublicKey) (wire.Stream, error) {
	hop, a, err := l.hopOrAttempt()
	if err != nil {
		return nil, err
	}
	if a != nil {
		select {
		case <-a.early:
			if c := l.openEarly(ctx, a, executor); c != nil {
				return &circuit{Stream: c}, nil
			}
		case <-a.done:
		case <-ctx.Done():
		}
		if hop, err = l.outcome(ctx, a); err != nil {
			return nil, err
		}
	}
	s, err := askForCircuit(ctx, hop.Transport, executor)
	if err != nil {
		return nil, err
	}
	return &circuit{Stream: s}, nil
}

// askForCircuit opens a stream with the request for a circuit at its head.
func askForCircuit(ctx context.Context, t wire.Transport, executor keys.PublicKey) (wire.Stream, error) {
	s, err := t.OpenStream(ctx)
	if err != nil {
		return nil, err
	}
	if d, ok := ctx.Deadline(); ok {
		s.SetWriteDeadline(d)
	}
	if err := wire.WriteFrame(s, &wire.Dial{Executor: executor.Raw()}); err != nil {
		s.Reset(wire.CodeCancelled)
		return nil, err
	}
	s.SetWriteDeadline(time.Time{})
	return s, nil
}

// close lets news be told until a time; whoever is told may use the link meanwhile.
func (l *link) close(until time.Time) {
	l.news.finish(until)
	l.cancel(wire.ErrClosed)
	l.running.Wait()
}

// circuit reads the relay's reply before the first byte of the executor's.
type circuit struct {
	wire.Stream
	replied bool
	err     error
}

func (c *circuit) Read(p []byte) (int, error) {
	if !c.replied {
		c.replied = true
		c.err = c.readReply()
	}
	if c.err != nil {
		return 0, c.err
	}
	return c.Stream.Read(p)
}

func (c *circuit) readReply() error {
	m, err := wire.ReadFrame(c.Stream)
	if err != nil {
		return err
	}
	reply, ok := m.(*wire.DialReply)
	if !ok {
		return wire.Errorf(wire.CodeProtocol, "the relay answered with a %T", m)
	}
	if err := reply.Err(); err != nil {
		return &relayRefusal{err}
	}
	return nil
}

// relayRefusal is the relay's no to a circuit: nothing reached the executor.
type relayRefusal struct{ error }

func (r *relayRefusal) Unwrap() error { return r.error }

func isRelayRefusal(err error) bool {
	_, ok := errors.AsType[*relayRefusal](err)
	return ok
}
