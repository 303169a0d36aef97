package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// lossError is wire.ErrLost with a reason. Its code says that the outcome is unknown, whatever the
// code of the reason: a circuit that the relay ended "busy" is not an exec that was refused.
type lossError struct {
	reason error         // nil: there is no more to say
	tried  time.Duration // for how long we tried to come back
}

func (e *lossError) Error() string {
	s := wire.ErrLost.Error()
	if e.tried > 0 {
		s += fmt.Sprintf(" (tried to come back for %v)", e.tried)
	}
	if e.reason != nil {
		s += ": " + e.reason.Error()
	}
	return s
}

func (e *lossError) Unwrap() []error {
	errs := []error{wire.ErrLost, &wire.Error{Code: wire.CodeUnknown}}
	if e.reason != nil {
		errs = append(errs, e.reason)
	}
	return errs
}

// lostError makes every end of a stream that is no answer an ErrLost, and leaves what
// the relay or the executor said as it is. A message that could not be sent whole can still
// have arrived.
func lostError(err error) error {
	if isRelayRefusal(err) {
		return &errUnsent{err}
	}
	if e, ok := errors.AsType[*linkError](err); ok {
		return &errUnsent{e.error} // the relay never looked at the stream
	}
	if code := wire.CodeOf(err); code == wire.CodeNoChannel || code == wire.CodeVersion {
		return err
	}
	if isVerdict(err) || errors.Is(err, wire.ErrLost) || errors.Is(err, noiseconn.ErrUnsendable) {
		return err
	}
	if err == io.EOF || err == io.ErrUnexpectedEOF || wire.CodeOf(err) == wire.CodeUnknown {
		return wire.ErrLost // there is no more to say
	}
	return &lossError{reason: err}
}

func isVerdict(err error) bool {
	_, ok := errors.AsType[*verdict](err)
	return ok
}

// isLost reports whether what was sent may have been carried out without our knowing.
func isLost(err error) bool {
	_, unsent := errors.AsType[*errUnsent](err)
	return !unsent && errors.Is(err, wire.ErrLost)
}

// plain drops the marks that only this package needs. A connection that was lost before anything
// was sent leaves no doubt about the outcome: it must not look like wire.ErrLost.
func plain(err error) error {
	if e, ok := errors.AsType[*errUnsent](err); ok {
		if err = e.error; errors.Is(err, wire.ErrLost) {
			return wire.Errorf(wire.CodeUnreachable, "%s", strings.ReplaceAll(e.Error(), wire.ErrLost.Error(), "connection lost"))
		}
	}
	if v, ok := errors.AsType[*verdict](err); ok {
		return v.error
	}
	return err
}

// comeback paces the tries to make up for one loss, and ends them.
type comeback struct {
	patience time.Duration
	lost     time.Time
	tries    int
}

const (
	firstPause = 50 * time.Millisecond
	lastPause  = 5 * time.Second
)

func newComeback(patience time.Duration) *comeback {
	return &comeback{patience: patience, lost: time.Now()}
}

// within bounds the tries.
func (b *comeback) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, b.lost.Add(b.patience))
}

// pause waits before the next try, and reports whether there is to be one. The first follows at
// once; whoever is asked for patience has it.
func (b *comeback) pause(ctx context.Context, last error) bool {
	var d time.Duration
	if b.tries > 0 {
		d = lastPause
		if shift := b.tries - 1; shift < 10 {
			d = min(lastPause, firstPause<<shift)
		}
		d = d/2 + rand.N(d)/2 // where many lost one link, not all knock at the same moment
	}
	if e, ok := errors.AsType[*wire.Error](last); ok && e.Code == wire.CodeBusy {
		d += e.RetryAfter
	}
	b.tries++
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	return ctx.Err() == nil
}

// givenUp is the error after the last try, which failed with a reason.
func (b *comeback) givenUp(reason error) error {
	return &lossError{reason: reasonOf(reason), tried: time.Since(b.lost).Round(time.Second)}
}

// reasonOf is what is known about a loss beyond that it is one, nil for nothing.
func reasonOf(err error) error {
	if l, ok := errors.AsType[*lossError](err); ok {
		return l.reason
	}
	if err = plain(err); errors.Is(err, wire.ErrLost) {
		return nil
	}
	return err
}
