package relay

import (
	"context"
	"math"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// paces hold tenants to their rates. A tenant's rate is its own: what it does not use is lent to nobody, and
// what others use takes nothing from it.
type paces struct {
	mu         sync.Mutex
	bytes      map[string]*rate.Limiter
	handshakes map[string]*rate.Limiter
}

func newPaces() *paces {
	return &paces{bytes: make(map[string]*rate.Limiter), handshakes: make(map[string]*rate.Limiter)}
}

// burstBytes is what a tenant may send at once: a quarter of a second's worth, and never less than a
// few chunks, since a circuit takes tokens for a whole one.
func burstBytes(perSecond int) int { return max(perSecond/4, 4*copyBuffer) }

// carry is the limiter of a tenant's circuits, nil for none.
func (p *paces) carry(tenant string, perSecond int) *rate.Limiter {
	return p.limiter(p.bytes, tenant, perSecond, burstBytes(perSecond))
}

// handshake reports whether one more handshake of a tenant's member is within its rate; twice as many may
// come at once.
func (p *paces) handshake(tenant string, perSecond int) bool {
	l := p.limiter(p.handshakes, tenant, perSecond, 2*perSecond)
	return l == nil || l.Allow()
}

// limiter is the one for a tenant, at the rate that its line says now.
func (p *paces) limiter(of map[string]*rate.Limiter, tenant string, perSecond, burst int) *rate.Limiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := of[tenant]
	switch {
	case perSecond <= 0:
		if l != nil { // whoever has it waits no more
			l.SetLimit(rate.Inf)
			delete(of, tenant)
		}
		return nil
	case l == nil:
		l = rate.NewLimiter(rate.Limit(perSecond), burst)
		of[tenant] = l
	case l.Limit() != rate.Limit(perSecond):
		l.SetLimit(rate.Limit(perSecond))
		l.SetBurst(burst)
	}
	return l
}

// forget drops tenants that are gone.
func (p *paces) forget(there func(tenant string) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, of := range []map[string]*rate.Limiter{p.bytes, p.handshakes} {
		for tenant := range of {
			if !there(tenant) {
				delete(of, tenant)
			}
		}
	}
}

// take waits until n bytes are within the rate of l, nil for none, or until ctx ends. limited is called
// before it waits.
func take(ctx context.Context, l *rate.Limiter, n int, limited func()) {
	if l == nil || n == 0 {
		return
	}
	burst := l.Burst()
	for n > 0 {
		part := min(n, burst)
		n -= part
		if math.IsInf(float64(l.Limit()), 1) {
			return
		}
		if !l.AllowN(time.Now(), part) {
			limited()
			if l.WaitN(ctx, part) != nil {
				return // the circuit is over
			}
		}
	}
}
