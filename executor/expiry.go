package executor

import (
	"context"
	"time"
)

// expiryPoll bounds how long a line that has expired stays in force when the wall clock was set, or the machine slept: timers
// follow neither.
const expiryPoll = time.Minute

// now is the wall clock. Without its monotonic part, which does not follow when the clock is set.
func (e *Executor) now() time.Time { return e.cfg.Now().Round(0) }

// endExpired ends what clients have whose line expires, at that moment, until ctx is done.
func (e *Executor) endExpired(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for seen := (time.Time{}); ; {
		select {
		case <-timer.C:
		case <-e.listChanged:
		case <-ctx.Done():
			return
		}
		now := e.now()
		clients := e.cfg.Clients()
		if at, ok := clients.NextExpiry(seen); ok && !at.After(now) {
			e.recheck()
		}
		seen = now // also when the clock was set back: what has expired will do so again
		wait := expiryPoll
		if at, ok := clients.NextExpiry(now); ok {
			wait = min(wait, at.Sub(now))
		}
		timer.Reset(wait)
	}
}
