package sandbox

import "time"

// A start for which no sandbox is ready still need not begin from nothing: the pool
// keeps one init that has its namespaces and waits to be told what to build. It fits
// any policy, holds no place in a workspace, and is given up when the mounts of the
// host change, of which its namespace has a copy.

// takeSpare returns an init that has been started ahead, or nil. It is one of the kind bornApart.
func (p *pool) takeSpare(kind birth) *blank {
	if p == nil || kind != bornApart {
		return nil
	}
	p.mu.Lock()
	b := p.spare
	p.spare = nil
	p.mu.Unlock()
	if b != nil && (b.mounts != p.mounts.generation() || b.broken()) {
		b.discard()
		return nil
	}
	return b
}

// spareIn is how long it is until the spare is due: its end if there is one, which
// is told by an unused spare to discard, or its making. The caller holds mu.
func (p *pool) spareIn(now time.Time) (wait time.Duration, drop *blank) {
	left := p.spareUsed.Add(p.idle).Sub(now)
	switch {
	case left <= 0:
		drop, p.spare = p.spare, nil
		return p.idle, drop
	case p.spare != nil:
		return left, nil
	}
	return max(0, p.spareAt.Sub(now)), nil
}

// makeSpare starts an init for the next policy that has no sandbox ready.
func (p *pool) makeSpare() {
	mounts := p.mounts.generation()
	b, err := p.launcher.fork(bornApart, nil)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.stats.Failed++
		p.spareRetry = min(max(2*p.spareRetry, firstRetry), lastRetry)
		p.spareAt = time.Now().Add(p.spareRetry)
		return
	}
	b.mounts = mounts
	p.spare, p.spareRetry = b, 0
}
