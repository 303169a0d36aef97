package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// session is what a Remote keeps of a handshake with its executor.
type session struct {
	*noiseconn.Session
	epoch    wire.ID
	used     time.Duration // on the session clock
	renewing bool
}

// usable: a channel may still be opened, with some time to spare.
func (s *session) usable() bool {
	now := s.Clock()
	return now < wire.SessionAge-time.Minute && now-s.used < wire.SessionIdle-time.Minute && s.Left() > 0
}

// channel is an open conversation whose first message was sent.
type channel struct {
	conn    *noiseconn.Conn
	session *session
}

// errUnsent marks errors from before the first message was on its way: nothing can have
// happened at the executor.
type errUnsent struct{ error }

func (e *errUnsent) Unwrap() error { return e.error }

// verdict marks what only the executor can have brought about: its refusal inside Noise, or its
// breach of the protocol. Whatever else ends a circuit can come from anybody on the way.
type verdict struct{ error }

func (v *verdict) Unwrap() error { return v.error }

// breach is a verdict on an executor that breaks the protocol.
func breach(format string, args ...any) error {
	return &verdict{wire.Errorf(wire.CodeProtocol, format, args...)}
}

// opening makes the first message of a channel from the session clock and the state epoch. It
// is called for every try to send it.
type opening func(clock time.Duration, epoch wire.ID) wire.Message

// open opens a channel, sends the first message and returns the first answer. A session that
// the executor does not know any more is replaced by one fresh handshake; a second such answer
// is an error.
func (r *Remote) open(ctx context.Context, make opening) (*channel, wire.Message, error) {
	ch, answer, first := r.tryOpen(ctx, false, make)
	if code := wire.CodeOf(first); first == nil || code != wire.CodeNoChannel && code != wire.CodeLate || isRelayRefusal(first) {
		return ch, answer, first
	}
	ch, answer, err := r.tryOpen(ctx, true, make)
	if err != nil && !isVerdict(first) {
		err = &afterUnproven{err}
	}
	return ch, answer, err
}

// afterUnproven marks errors of the try that follows an answer which anybody on the way can have
// given: the first message may have been carried out.
type afterUnproven struct{ error }

func (e *afterUnproven) Unwrap() error { return e.error }

func (r *Remote) tryOpen(ctx context.Context, fresh bool, make opening) (*channel, wire.Message, error) {
	known, found, err := r.sessionOrTurn(ctx, fresh)
	if err != nil {
		return nil, nil, &errUnsent{err}
	}
	if known == nil {
		if known = r.borrowed(ctx, r.forgotten(fresh)); known != nil {
			found(known)
			found = nil
		}
	}
	stream, err := r.cfg.OpenCircuit(ctx)
	if err != nil {
		if found != nil {
			found(nil)
		}
		return nil, nil, &errUnsent{err}
	}
	stop := context.AfterFunc(ctx, func() { stream.Reset(wire.CodeCancelled) })
	defer stop()
	var ch *channel
	var answer wire.Message
	if known != nil {
		ch, answer, err = r.openKnown(stream, known, make)
	} else {
		ch, answer, err = r.openFresh(ctx, stream, make, found)
	}
	if err == nil && !stop() { // the context ended and took the stream with it
		err = context.Cause(ctx)
	}
	if err != nil {
		stream.Reset(wire.CodeCancelled)
		if ctx.Err() != nil && wire.CodeOf(err) != wire.CodeNoChannel {
			err = rewrap(err, context.Cause(ctx))
		}
		return nil, nil, err
	}
	return ch, answer, nil
}

// rewrap keeps what is known about whether anything was sent.
func rewrap(err, cause error) error {
	if _, ok := errors.AsType[*errUnsent](err); ok {
		return &errUnsent{cause}
	}
	return &lossError{reason: cause}
}

func (r *Remote) openKnown(stream wire.Stream, s *session, make opening) (*channel, wire.Message, error) {
	conn, err := s.OpenChannel(stream)
	if err != nil {
		return nil, nil, &errUnsent{err}
	}
	if err := conn.Send(make(s.Clock(), s.epoch)); err != nil {
		return nil, nil, lostError(err)
	}
	answer, err := r.firstAnswer(conn)
	return &channel{conn, s}, answer, err
}

// openFresh makes a handshake on the stream and goes on with its channel 0.
func (r *Remote) openFresh(ctx context.Context, stream wire.Stream, make opening, found func(*session)) (*channel, wire.Message, error) {
	pending := true
	tell := func(s *session) { // whoever waits for the session need not wait for our answer
		if pending {
			pending = false
			found(s)
		}
	}
	defer tell(nil)
	began := time.Now()
	s, f, err := r.foundAndAsk(ctx, stream, make)
	r.observer.Founded(time.Since(began), err)
	if err != nil {
		return nil, nil, err
	}
	tell(s)
	answer, err := r.firstAnswer(f.conn)
	return &channel{f.conn, s}, answer, err
}

// foundAndAsk sends the first message right behind the handshake, without waiting for its end.
func (r *Remote) foundAndAsk(ctx context.Context, stream wire.Stream, make opening) (*session, *founding, error) {
	f, err := r.found(ctx, stream, r.cfg.Executor, nil)
	if err != nil {
		return nil, nil, &errUnsent{err}
	}
	if err := f.conn.Send(make(0, f.epoch)); err != nil {
		return nil, nil, lostError(err)
	}
	s, welcome, err := f.welcomed()
	if err != nil {
		return nil, nil, err
	}
	r.learn(welcome)
	return s, f, nil
}

// renew makes a session to follow old, on a channel 0 that carries nothing else.
func (r *Remote) renew(ctx context.Context, old *session) (*session, error) {
	stream, err := r.cfg.OpenCircuit(ctx)
	if err != nil {
		return nil, err
	}
	id := old.ID()
	s, welcome, err := r.foundOnly(ctx, stream, r.cfg.Executor, &id)
	if err != nil {
		return nil, err
	}
	r.learn(welcome)
	return s, nil
}

// foundOnly makes a session with whoever has the key, and ends its channel 0 and the stream.
func (r *Remote) foundOnly(ctx context.Context, stream wire.Stream, key keys.PublicKey, replaces *wire.ID) (*session, *wire.Welcome, error) {
	stop := context.AfterFunc(ctx, func() { stream.Reset(wire.CodeCancelled) })
	defer stop()
	defer stream.Reset(wire.CodeCancelled)
	f, err := r.found(ctx, stream, key, replaces)
	if err != nil {
		return nil, nil, err
	}
	s, welcome, err := f.welcomed()
	if err != nil {
		return nil, nil, err
	}
	f.conn.CloseWrite() // should it fail, the session stands all the same
	return s, welcome, nil
}

// founding is a handshake whose third message is on its way.
type founding struct {
	conn  *noiseconn.Conn
	hello *wire.Hello
	epoch wire.ID
}

func (r *Remote) found(ctx context.Context, stream wire.Stream, key keys.PublicKey, replaces *wire.ID) (*founding, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	i, err := noiseconn.Dial(ctx, stream, noiseconn.InitiatorConfig{
		Static: r.cfg.Key, Peer: key.Raw(), Prologue: noiseconn.EndToEndPrologue(), Clock: r.cfg.Clock,
	})
	if err != nil {
		return nil, handshakeError(key, err)
	}
	f := &founding{hello: &wire.Hello{Versions: wire.Versions, Replaces: replaces, Software: r.cfg.Software}, epoch: i.Epoch()}
	rand.Read(f.hello.Random[:])
	f.conn, err = i.Finish(f.hello)
	return f, err
}

// welcomed reads the executor's decision.
func (f *founding) welcomed() (*session, *wire.Welcome, error) {
	f.conn.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout))
	m, err := f.conn.Recv()
	f.conn.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, nil, lostError(err)
	}
	switch m := m.(type) {
	case *wire.Refused:
		return nil, nil, &errUnsent{&verdict{m.Err()}} // refused before anything was read
	case *wire.Welcome:
		if !m.Versions.Agrees(wire.Versions, wire.Version) {
			return nil, nil, &verdict{wire.Errorf(wire.CodeVersion, "the executor speaks wire versions %d to %d, this build %d to %d",
				m.Versions.Min, m.Versions.Max, wire.Versions.Min, wire.Versions.Max)}
		}
		ns, err := noiseconn.NewSession(f.conn, f.hello, m)
		if err != nil {
			return nil, nil, err
		}
		return &session{Session: ns, epoch: f.epoch, used: ns.Clock()}, m, nil
	}
	return nil, nil, breach("the executor answered with a %T", m)
}

func handshakeError(key keys.PublicKey, err error) error {
	if e, ok := errors.AsType[*linkError](err); ok {
		return e.error // there was no relay to begin with
	}
	if isRelayRefusal(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no secure channel to the executor %s: %w", key, err)
}

// firstAnswer waits for as long as an executor may be silent, where it is worth trying again.
func (r *Remote) firstAnswer(conn *noiseconn.Conn) (wire.Message, error) {
	if r.patience >= 0 {
		conn.SetReadDeadline(time.Now().Add(wire.PingSilence))
		defer conn.SetReadDeadline(time.Time{})
	}
	m, err := conn.Recv()
	if err != nil {
		return nil, lostError(err)
	}
	if refused, ok := m.(*wire.Refused); ok {
		conn.CloseWrite()
		return nil, &verdict{refused.Err()}
	}
	return m, nil
}
