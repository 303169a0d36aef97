package relay

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// paces hold tenants to their rates, or keys. A tenant's rate is its own: what it does not use is lent to nobody, and
// what others use takes nothing from it.
type paces struct {
	mu         sync.Mutex
	bytes      map[string]*pace
	handshakes map[string]*rate.Limiter
}

func newPaces() *paces {
	return &paces{bytes: make(map[string]*pace), handshakes: make(map[string]*rate.Limiter)}
}

// burstBytes is what a tenant may send at once: what the rate gives in 50 ms, since others wait for the processors meanwhile, and
// never less than a few chunks, since a circuit takes tokens for a whole one.
func burstBytes(perSecond int) int { return max(perSecond/20, 4*copyBuffer) }

// carry is the pace of a tenant's circuits. A tenant without a rate has one too: it may get a rate while they go on. perSecond
// is asked under the lock, so that what was read before a reload is not in force after it.
func (p *paces) carry(tenant string, perSecond func(tenant string) int) *pace {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.bytes[tenant]
	if c == nil {
		c = new(pace)
		p.bytes[tenant] = c
	}
	c.set(perSecond(tenant))
	return c
}

// adjust gives all circuits that go on the rates of now, and drops the tenants that are gone.
func (p *paces) adjust(there func(tenant string) bool, perSecond func(tenant string) int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for tenant, c := range p.bytes {
		c.set(perSecond(tenant))
		if !there(tenant) {
			delete(p.bytes, tenant)
		}
	}
	for tenant := range p.handshakes {
		if !there(tenant) {
			delete(p.handshakes, tenant)
		}
	}
}

// handshake reports whether one more handshake of a tenant's member is within its rate; twice as many may
// come at once.
func (p *paces) handshake(tenant string, perSecond int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if perSecond <= 0 {
		delete(p.handshakes, tenant)
		return true
	}
	l := p.handshakes[tenant]
	if l == nil {
		l = rate.NewLimiter(rate.Limit(perSecond), 2*perSecond)
		p.handshakes[tenant] = l
	} else if l.Limit() != rate.Limit(perSecond) {
		l.SetLimit(rate.Limit(perSecond))
		l.SetBurst(2 * perSecond)
	}
	return l.Allow()
}

// pace is the rate of one tenant's circuits, which all of them share. The zero value has none.
type pace struct {
	mu        sync.Mutex
	perSecond int
	limiter   *rate.Limiter // nil: none
	changed   chan struct{} // closed when limiter is not in force any more
}

// set changes the rate, which acts at once on those who wait. Zero lifts it.
func (p *pace) set(perSecond int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if perSecond == p.perSecond {
		return
	}
	p.perSecond, p.limiter = perSecond, nil
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
	if perSecond > 0 {
		p.limiter = rate.NewLimiter(rate.Limit(perSecond), burstBytes(perSecond))
		p.changed = make(chan struct{})
	}
}

func (p *pace) current() (l *rate.Limiter, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limiter, p.changed
}

// lookEvery is how often who waits for its pace looks whether it still has a reason to.
const lookEvery = 100 * time.Millisecond

// take waits until n bytes, at most a chunk, are within the rate, ctx ends, or gone reports true. Those who wait are served in
// the order in which they came: a small message waits for one chunk of each other circuit at most. limited is called before it waits.
func (p *pace) take(ctx context.Context, n int, gone func() bool, limited func()) {
	for told := false; ; told = true {
		l, changed := p.current()
		if l == nil || n == 0 {
			return
		}
		place := l.ReserveN(time.Now(), n)
		wait := place.Delay()
		if wait <= 0 {
			return
		}
		if !told {
			limited()
		}
		switch p.wait(ctx, wait, changed, gone) {
		case paceDue:
			return
		case paceOver:
			place.Cancel()
			return
		}
	}
}

// How a wait has ended.
type paceEnd int

const (
	paceDue     paceEnd = iota // the bytes are within the rate now
	paceOver                   // the circuit is
	paceChanged                // there is another rate
)

func (p *pace) wait(ctx context.Context, wait time.Duration, changed <-chan struct{}, gone func() bool) paceEnd {
	due := time.NewTimer(wait)
	defer due.Stop()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case <-due.C:
			return paceDue
		case <-changed:
			return paceChanged
		case <-ctx.Done():
			return paceOver
		case <-look.C:
			if gone() {
				return paceOver
			}
		}
	}
}
