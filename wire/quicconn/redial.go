package quicconn

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Backoff says how long to wait between attempts. The zero value has the figures that a
// fleet of thousands needs after a relay restart: the waits are spread at random over
// their whole length (full jitter), so that nobody comes back in step with others.
type Backoff struct {
	Base    time.Duration // longest wait after the first failure; zero is 1 s
	Cap     time.Duration // longest wait of all; zero is 60 s
	Crowded time.Duration // longest wait after a relay that is there took no more newcomers; zero is 10 s, Cap is the most
	Settled time.Duration // a connection that stood this long counts as success; zero is 60 s
	// Random returns a number in [0, 1); nil is math/rand.
	Random func() float64
	// Waiting, if not nil, is told before each wait why and for how long.
	Waiting func(cause error, wait time.Duration)
}

// retryAfterMost bounds what a relay can ask for: the hint of one that is out of its mind,
// or is none at all, must not put a machine out of reach for good.
const retryAfterMost = time.Hour

// stopError ends Redial.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }
func (e *stopError) Unwrap() error { return e.err }

// Stop marks an error after which [Redial] does not try again. Stop(nil) is nil.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &stopError{err}
}

// Redial calls connect again and again until ctx is done, and returns the cause, or until
// connect returns an error marked by [Stop], and returns that one. Connect dials, does
// its work and returns when the connection has ended: when it was established (zero if it
// never was) and why it ended. The retry-after of a *wire.Error is the least that Redial
// waits, up to an hour. A connection that was up for a short time only does not reset the
// waits; else a relay that accepts and drops would be hammered.
func Redial(ctx context.Context, b Backoff, connect func(context.Context) (established time.Time, err error)) error {
	b.Base = orDefault(b.Base, time.Second)
	b.Cap = orDefault(b.Cap, time.Minute)
	b.Crowded = min(orDefault(b.Crowded, 10*time.Second), b.Cap)
	b.Settled = orDefault(b.Settled, time.Minute)
	if b.Random == nil {
		b.Random = rand.Float64
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	longest := b.Base
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		established, err := connect(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if stop, ok := errors.AsType[*stopError](err); ok {
			return stop.err
		}
		if !established.IsZero() && time.Since(established) >= b.Settled {
			longest = b.Base
		}
		if isCrowded(err) {
			longest = min(longest, b.Crowded)
		}
		wait := time.Duration(b.Random() * float64(longest))
		if e, ok := errors.AsType[*wire.Error](err); ok {
			wait += min(e.RetryAfter, retryAfterMost) // on top, so that these are spread as well
		}
		longest = min(2*longest, b.Cap)
		if b.Waiting != nil {
			b.Waiting(err, wait)
		}
		timer.Reset(wait)
	}
}

// isCrowded reports whether the relay's guard turned the newcomer away unseen, since too many come at once. That costs
// the relay next to nothing and is over soon; the long waits are for a relay that is gone. One that has seen who
// comes says itself how long to wait.
func isCrowded(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && e.Code == wire.CodeBusy && e.RetryAfter == 0
}

func orDefault(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
