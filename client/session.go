package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"time"

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
	return now < wire.SessionAge-time.Minute && now-s.used < wire.SessionIdle-time.Minute && s.Channels() < wire.SessionChannels-1
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

// open opens a channel, sends the first message and returns the first answer. A session that
// the executor does not know any more is replaced by one fresh handshake; a second such answer
// is an error. make gets the session clock and the state epoch.
func (r *Remote) open(ctx context.Context, make func(clock time.Duration, epoch wire.ID) wire.Message) (*channel, wire.Message, error) {
	for fresh := false; ; fresh = true {
		ch, answer, err := r.tryOpen(ctx, fresh, make)
		if err != nil {
			code := wire.CodeOf(err)
			if again := code == wire.CodeNoChannel || code == wire.CodeLate; again && !fresh && !isRelayRefusal(err) {
				continue
			}
			return nil, nil, err
		}
		return ch, answer, nil
	}
}

func (r *Remote) tryOpen(ctx context.Context, fresh bool, make func(time.Duration, wire.ID) wire.Message) (*channel, wire.Message, error) {
	known, found, err := r.sessionOrTurn(ctx, fresh)
	if err != nil {
		return nil, nil, &errUnsent{err}
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
	return fmt.Errorf("%w (%w)", wire.ErrLost, cause)
}

func (r *Remote) openKnown(stream wire.Stream, s *session, make func(time.Duration, wire.ID) wire.Message) (*channel, wire.Message, error) {
	conn, err := s.OpenChannel(stream)
	if err != nil {
		return nil, nil, &errUnsent{err}
	}
	if err := conn.Send(make(s.Clock(), s.epoch)); err != nil {
		return nil, nil, sendError(err)
	}
	answer, err := firstAnswer(conn)
	return &channel{conn, s}, answer, err
}

// openFresh makes a handshake on the stream and goes on with its channel 0.
func (r *Remote) openFresh(ctx context.Context, stream wire.Stream, make func(time.Duration, wire.ID) wire.Message, found func(*session)) (*channel, wire.Message, error) {
	pending := true
	tell := func(s *session) { // whoever waits for the session need not wait for our answer
		if pending {
			pending = false
			found(s)
		}
	}
	defer tell(nil)
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	i, err := noiseconn.Dial(ctx, stream, noiseconn.InitiatorConfig{
		Static: r.cfg.Key, Peer: r.cfg.Executor.Raw(), Prologue: noiseconn.EndToEndPrologue(), Clock: r.cfg.Clock,
	})
	if err != nil {
		return nil, nil, &errUnsent{r.handshakeError(err)}
	}
	hello := &wire.Hello{Versions: wire.Versions, Software: r.cfg.Software}
	rand.Read(hello.Random[:])
	conn, err := i.Finish(hello)
	if err != nil {
		return nil, nil, &errUnsent{err}
	}
	if err := conn.Send(make(0, i.Epoch())); err != nil {
		return nil, nil, sendError(err)
	}
	conn.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout))
	m, err := conn.Recv()
	conn.SetReadDeadline(time.Time{})
	if err != nil {
		return nil, nil, lostError(err)
	}
	switch m := m.(type) {
	case *wire.Refused:
		return nil, nil, &errUnsent{m.Err()} // refused before anything was read
	case *wire.Welcome:
		if !m.Versions.Agrees(wire.Versions, wire.Version) {
			return nil, nil, wire.Errorf(wire.CodeVersion, "the executor speaks wire versions %d to %d, this build %d to %d",
				m.Versions.Min, m.Versions.Max, wire.Versions.Min, wire.Versions.Max)
		}
		ns, err := noiseconn.NewSession(conn, hello, m)
		if err != nil {
			return nil, nil, err
		}
		founded := &session{Session: ns, epoch: i.Epoch(), used: ns.Clock()}
		tell(founded)
		answer, err := firstAnswer(conn)
		return &channel{conn, founded}, answer, err
	}
	return nil, nil, wire.Errorf(wire.CodeProtocol, "the executor answered with a %T", m)
}

func (r *Remote) handshakeError(err error) error {
	if isRelayRefusal(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("no secure channel to the executor %s: %w", r.cfg.Executor, err)
}

func firstAnswer(conn *noiseconn.Conn) (wire.Message, error) {
	m, err := conn.Recv()
	if err != nil {
		return nil, lostError(err)
	}
	if refused, ok := m.(*wire.Refused); ok {
		conn.CloseWrite()
		return nil, refused.Err()
	}
	return m, nil
}

// sendError: a first message that could not be sent whole can still have arrived.
func sendError(err error) error { return lostError(err) }

// lostError makes every end of a stream that is no answer an ErrLost, and leaves what
// the relay or the executor said as it is.
func lostError(err error) error {
	if isRelayRefusal(err) {
		return &errUnsent{err}
	}
	if code := wire.CodeOf(err); code == wire.CodeNoChannel || code == wire.CodeVersion {
		return err
	}
	if errors.Is(err, wire.ErrLost) || errors.Is(err, noiseconn.ErrUnsendable) {
		return err
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return wire.ErrLost
	}
	return fmt.Errorf("%w: %w", wire.ErrLost, err)
}
