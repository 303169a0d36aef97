package main

import (
	"context"
	"time"
)

// countEvery is how much of the overlap a crash can lose.
const countEvery = time.Minute

// count counts the time in which both keys are registered, and ends the overlap when it is over. It is running time: a clock
// that is set, or a machine that is off, ends it no earlier.
func (ids *identities) count(ctx context.Context) {
	wait := time.Second
	for last := time.Now(); ; {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
		since := time.Since(last)
		last = time.Now()
		wait = ids.tally(since, ctx.Err() != nil)
		if ctx.Err() != nil {
			return
		}
	}
}

// tally adds a time to the overlap, if there is one, and says when to come again.
func (ids *identities) tally(since time.Duration, stopping bool) (wait time.Duration) {
	current, next := ids.ring.keys()
	if next == nil || !stopping && !(ids.registered(current.Public()) && ids.registered(next.Public())) {
		return time.Second
	}
	over, wait := false, countEvery
	err := changeRekeyFile(ids.state.path, func(f *rekeyFile) error {
		if f.admitted != next.Public() || len(f.retire) > 0 {
			return nil // not begun, or ended by the command meanwhile
		}
		f.served += since
		over = f.served >= f.overlap
		wait = max(time.Second, min(countEvery, f.overlap-f.served))
		return nil
	})
	if err == nil && over && !stopping {
		err = finishExecutorRekey(ids.state.path)
	}
	if err != nil {
		ids.log.Error("the replacement of the executor's key does not go on", "err", err)
	}
	return wait
}
