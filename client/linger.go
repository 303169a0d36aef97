package client

import (
	"context"
	"sync"
	"time"
)

// lingerAtMost is for how long Close lets work go on that a program would miss which ends at once.
const lingerAtMost = 5 * time.Second

// lingering is work that is not begun for a caller and that Close does not cancel at once: news about
// keys, which a program that runs one short command must get too. Make it with newLingering.
type lingering struct {
	ctx    context.Context // of the work; ends when Close waits no longer
	cancel context.CancelFunc

	mu      sync.Mutex
	closed  bool
	running int           // goroutines
	telling int           // those of them that are in a caller's function, which nothing can end
	changed chan struct{} // closed when one of the two did; nil while nobody waits
}

func newLingering() *lingering {
	l := &lingering{}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// start runs work in a goroutine, unless Close has begun.
func (l *lingering) start(work func(context.Context)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.running++
	go func() {
		defer l.add(&l.running, -1)
		work(l.ctx)
	}()
}

// tell calls a caller's function from the work. It holds no lock meanwhile.
func (l *lingering) tell(f func()) {
	l.add(&l.telling, 1)
	defer l.add(&l.telling, -1)
	f()
}

func (l *lingering) add(n *int, d int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*n += d
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// finish takes no more work and waits for what there is until then; afterwards it cancels that, and waits for
// all but a caller's function. So one that closes its own Client delays Close and does not lock it up.
func (l *lingering) finish(until time.Time) {
	defer l.cancel()
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	late := false
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for l.running > 0 && !(late && l.running == l.telling) {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			late = true
			l.cancel()
		}
		l.mu.Lock()
	}
}
