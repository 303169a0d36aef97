package executor

import (
	"time"

	"github.com/postern-relay/postern/wire"
)

// absence is what an exec knows of a controller that is gone. It is below execution.mu.
type absence struct {
	reachable bool          // a client could come back
	since     time.Time     // of the absence
	most      time.Duration // how long it may last, reachable or not
	timer     *time.Timer
}

// claim makes p the controller; the one before is told. An attempt below one that the
// same client instance made later was held back on the way, and gets nothing. Nor does a client
// that comes back after another one took over.
func (x *execution) claim(p *LocalProcess, c claim) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case c.attempt < x.claims[c.instance]:
		return wire.Errorf(wire.CodeSuperseded, "a later attempt of the same client has the exec")
	case c.generation != 0 && c.generation < x.generation && x.claimer != c.instance:
		return wire.Errorf(wire.CodeSuperseded, "another client took over")
	}
	if x.claims == nil {
		x.claims = make(map[wire.ID]uint64)
	}
	if _, known := x.claims[c.instance]; !known && len(x.claims) >= maxInstances {
		clear(x.claims) // forgetting only allows an old attempt to win
	}
	x.claims[c.instance], x.claimer = c.attempt, c.instance
	if x.controller != nil {
		x.controller.supersede()
	}
	x.generation++
	p.generation = x.generation
	x.controller = p
	if x.timer != nil {
		x.timer.Stop()
	}
	if !isClosed(x.exited) && x.cause == 0 { // one that is being ended must not wait for anybody
		x.log.SetFree(false)
	}
	return nil
}

// release ends p's hold on the exec. Without a controller the absence begins.
func (x *execution) release(p *LocalProcess) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.handles, p)
	if x.controller != p {
		return
	}
	x.controller = nil
	switch {
	case isClosed(x.done):
	case isClosed(x.exited):
		x.log.SetFree(true)
	default:
		x.since = time.Now()
		x.awaitReturn()
	}
}

// setReachable says whether a client could come back. The grace counts anew from each time that it
// could, and stands still while it could not.
func (x *execution) setReachable(yes bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.reachable = yes
	if x.controller == nil && !x.since.IsZero() && !isClosed(x.exited) {
		x.awaitReturn()
	}
}

// awaitReturn sets the timer that ends a command to which nobody comes back. Callers hold mu.
func (x *execution) awaitReturn() {
	if x.info.Detach {
		return // it needs nobody
	}
	if x.timer != nil {
		x.timer.Stop()
	}
	left := x.most - time.Since(x.since)
	if x.reachable {
		left = min(left, x.info.Grace)
	}
	x.timer = time.AfterFunc(max(left, 0), x.expire)
}

func (x *execution) expire() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.controller != nil {
		return
	}
	_ = x.terminateLocked(wire.CauseTerminated, 0) // fails only when it has ended
	x.log.SetFree(true)                            // or a command blocked on its output could not even trap TERM
}
