package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// maxItems bounds an answer of the relay's: more than a tenant has, and what a client's memory holds.
const maxItems = 100_000

// question is a request to the relay itself, on a stream of its own:
//
//	client -> relay   one frame, and the end of this direction
//	relay  -> client  items, then one Reply
//
// Whatever it does is done once, however often it is asked.
type question struct {
	does    string // what it does, for errors
	feature string // what a relay lacks that does not know it
	message wire.Message
}

// collect makes a request and returns what convert makes of its items.
func collect[M wire.Message, T any](ctx context.Context, l *link, q question, convert func(M) (T, error)) ([]T, error) {
	var all []T
	err := l.request(ctx, q, func() func(wire.Message) error {
		all = nil // a second try begins anew
		return func(m wire.Message) error {
			item, ok := m.(M)
			switch {
			case !ok:
				return wire.Errorf(wire.CodeProtocol, "the relay answered with a %T", m)
			case len(all) == maxItems:
				return wire.Errorf(wire.CodeProtocol, "the relay answered with more than %d items", maxItems)
			}
			converted, err := convert(item)
			if err == nil {
				all = append(all, converted)
			}
			return err
		}
	})
	if err != nil {
		if errors.Is(err, wire.ErrLost) { // there is no outcome to be unsure of
			err = plain(&errUnsent{err})
		}
		return nil, err // and nothing else: a part of a list looks like a short one
	}
	return all, nil
}

// command makes a request that has no items.
func (l *link) command(ctx context.Context, q question) error {
	return l.request(ctx, q, func() func(wire.Message) error {
		return func(m wire.Message) error {
			return wire.Errorf(wire.CodeProtocol, "the relay answered with a %T", m)
		}
	})
}

// request asks, and asks once more where the connection was lost. Begin is called for each try and
// returns what takes its items. An error that is wire.ErrLost leaves open whether it was carried out.
func (l *link) request(ctx context.Context, q question, begin func() func(wire.Message) error) error {
	if _, err := wire.Encode(q.message); err != nil {
		return fmt.Errorf("%s: %w", q.does, err)
	}
	lost, err := l.ask(ctx, q, begin())
	if lost && ctx.Err() == nil {
		_, sure := errors.AsType[*errUnsent](err)
		_, again := l.ask(ctx, q, begin())
		if _, unsent := errors.AsType[*errUnsent](again); sure || !unsent {
			err = again
		}
	}
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case isTooOld(err):
		return err
	}
	return fmt.Errorf("%s: %w", q.does, plain(err))
}

// ask is one try. It reports whether it failed by the loss of the connection, which has ended then.
func (l *link) ask(ctx context.Context, q question, take func(wire.Message) error) (lost bool, err error) {
	hop, err := l.hop(ctx)
	if err != nil {
		return false, &errUnsent{err}
	}
	s, err := hop.Transport.OpenStream(ctx)
	if err != nil {
		return ended(ctx, hop, err), &errUnsent{err}
	}
	defer s.Reset(wire.CodeCancelled)
	stop := context.AfterFunc(ctx, func() { s.Reset(wire.CodeCancelled) })
	defer stop()
	if err = exchange(s, q, take); err != nil && !isTooOld(err) {
		lost = ended(ctx, hop, err)
	}
	return lost, err
}

// exchange sends the request and reads everything up to the Reply. Nothing else is read from the stream,
// so reading ahead does no harm.
func exchange(s wire.Stream, q question, take func(wire.Message) error) error {
	s.SetWriteDeadline(time.Now().Add(wire.HeaderTimeout))
	if err := wire.WriteFrame(s, q.message); err != nil {
		return q.unread(err)
	}
	s.CloseWrite() // a relay that has answered already takes the end no more
	r := bufio.NewReader(s)
	for first := true; ; first = false {
		s.SetReadDeadline(time.Now().Add(wire.PingSilence))
		m, err := wire.ReadFrame(r)
		switch {
		case err == nil:
		case first:
			return q.unread(err)
		default:
			return answerError(err)
		}
		switch m := m.(type) {
		case *wire.Reply:
			return m.Err()
		case *wire.DialReply: // it took the request for a Dial
			switch err := m.Err(); {
			case first && wire.CodeOf(err) == wire.CodeUnsupported:
				return q.tooOld()
			case first && err != nil:
				return err
			}
		}
		if err := take(m); err != nil {
			return err
		}
	}
}

// unread is the error before anything was answered. A relay that does not know the request may end the stream,
// or the connection, and say by its code why.
func (q question) unread(err error) error {
	if e, ok := errors.AsType[*wire.Error](err); ok && (e.Code == wire.CodeUnsupported || e.Code == wire.CodeProtocol) {
		return q.tooOld()
	}
	return answerError(err)
}

// answerError is the error of an answer that did not come to its Reply.
func answerError(err error) error {
	_, coded := errors.AsType[*wire.Error](err)
	switch {
	case coded, errors.Is(err, wire.ErrLost):
		return err
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return &cutError{}
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.Errorf(wire.CodeTimeout, "the relay does not answer")
	}
	return wire.Errorf(wire.CodeProtocol, "the relay's answer: %v", err)
}

// cutError is the end of an answer without Reply: no loss of the connection, and never a short list.
type cutError struct{}

func (*cutError) Error() string { return "the relay's answer ended before it was complete" }
func (*cutError) Unwrap() error { return io.ErrUnexpectedEOF }

// tooOldError is about a relay that does not know the request.
type tooOldError struct{ error }

func (e *tooOldError) Unwrap() error { return e.error }

func (q question) tooOld() error {
	return &tooOldError{wire.Errorf(wire.CodeUnsupported, "this relay is too old for %s: update it", q.feature)}
}

func isTooOld(err error) bool {
	_, ok := errors.AsType[*tooOldError](err)
	return ok
}

// ended reports whether an error comes from the end of the connection. A stream can know of that a moment earlier than
// the connection itself, which must not be taken for a standing one by the next try.
func ended(ctx context.Context, hop *noiseconn.Hop, err error) bool {
	gone := hop.Transport.Context()
	if !errors.Is(err, wire.ErrLost) {
		return gone.Err() != nil
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-gone.Done():
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
