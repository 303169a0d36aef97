package sandbox

import (
	"errors"
	"time"
)

// The keeper of a pool is one goroutine, from NewLauncher to Close.

// keep makes sandboxes and drops idle ones until the launcher closes.
func (p *pool) keep() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p.ctx.Err() == nil {
		s, wait := p.next(time.Now())
		if s != nil {
			p.fill(s)
			continue
		}
		p.mu.Lock()
		spareWait, unused := p.spareIn(time.Now())
		p.mu.Unlock()
		unused.discard()
		if spareWait == 0 {
			p.makeSpare()
			continue
		}
		wait = min(wait, spareWait)
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-p.wake:
		case <-p.ctx.Done():
		}
	}
}

// next drops what is idle and returns the shelf to fill, or how long there is
// nothing to do.
func (p *pool) next(now time.Time) (*shelf, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	wait := p.idle
	var due, oldest *shelf
	for key, s := range p.shelves {
		left := s.used.Add(p.idle).Sub(now)
		if left <= 0 {
			p.drop(s, len(s.ready))
			delete(p.shelves, key)
			continue
		}
		wait = min(wait, left)
		if len(s.ready) > 0 && (oldest == nil || s.used.Before(oldest.used)) {
			oldest = s
		}
		if len(s.ready) >= s.want {
			continue
		}
		if left := s.fillAt.Sub(now); left > 0 {
			wait = min(wait, left)
		} else if due == nil || s.used.After(due.used) {
			due = s
		}
	}
	if due == nil || p.stats.Ready < p.total {
		return due, wait
	}
	if oldest == nil || !oldest.used.Before(due.used) || oldest == due {
		return nil, wait // no room that others need less
	}
	p.drop(oldest, 1)
	oldest.want = len(oldest.ready) // until it is used again
	return due, 0
}

// fill makes one sandbox. Failures are counted, not reported: the next Start meets
// the same one, and its caller is told.
func (p *pool) fill(s *shelf) {
	p.making.Lock()
	defer p.making.Unlock()
	w, err := p.build(s.policy)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		if p.ctx.Err() == nil {
			p.stats.Failed++
		}
		s.retry = min(max(2*s.retry, firstRetry), lastRetry)
		s.fillAt = time.Now().Add(s.retry)
		return
	}
	s.retry = 0
	s.ready = append(s.ready, w)
	p.stats.Built++
	p.stats.Ready++
}

var errMoved = errors.New("the file system changed while a sandbox was made")

// build makes a sandbox and waits until it is complete.
func (p *pool) build(policy Policy) (*warm, error) {
	w := &warm{mounts: p.mounts.generation()} // before anything is mounted from it
	pl, err := p.launcher.planFor(policy)
	if err != nil {
		return nil, err
	}
	before, ok := p.launcher.look(policy)
	if !ok || !before.made(pl) {
		pl.release()
		return nil, errMoved
	}
	w.proc, err = p.launcher.launch(pl, nil)
	if err != nil {
		pl.release()
		return nil, err
	}
	select {
	case <-w.proc.ready:
	case <-w.proc.gone:
		return nil, <-w.proc.started
	case <-p.ctx.Done():
		_ = w.proc.Kill()
		return nil, p.ctx.Err()
	}
	after, ok := p.launcher.look(policy)
	if !ok || after.text != before.text || p.mounts.generation() != w.mounts {
		_ = w.proc.Kill()
		return nil, errMoved
	}
	w.sight = after.text
	return w, nil
}
