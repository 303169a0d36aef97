package quicconn

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Guard bounds what strangers can cost a listener before they have proven who they are:
// handshakes in flight, handshakes and failures from one address, and the memory that
// windows may grow to. The figures and their reasons are in settings.go. A Guard may be
// shared by listeners and by their owner, and is safe for concurrent use. The zero Guard
// admits nobody: make one with [NewGuard].
type Guard struct {
	exempt     []netip.Prefix
	random     func() float64 // nil in the zero Guard only
	start      time.Time
	unverified *rate.Limiter
	tally      tally

	mu       sync.Mutex
	inFlight int // handshakes from their first packet to Admit or their end
	halfOpen int // those of them whose address is not proven yet
	sources  sources
	windows  budget
}

// GuardOptions are the settings of a Guard. The zero value works.
type GuardOptions struct {
	// Exempt are addresses to which the limits for one source do not apply, such as a load
	// balancer's or that of a site with many executors. All other limits do.
	Exempt []netip.Prefix
	// WindowBudget is how many bytes the receive windows of all connections together may
	// grow by, above the 64 KiB that each begins with. Zero is a quarter of the machine's
	// memory (or of GOMEMLIMIT, if that is less), at least 64 MiB; a negative number is
	// none, so that every window stays as small as it begins.
	WindowBudget int64
	// Random returns a number in [0, 1) for the early drop; nil is math/rand.
	Random func() float64
}

// NewGuard makes a Guard. It holds nothing that must be closed.
func NewGuard(o GuardOptions) *Guard {
	g := &Guard{
		random:     o.Random,
		start:      time.Now(),
		unverified: rate.NewLimiter(unverifiedRate, unverifiedBurst),
		sources:    newSources(sourcesMost),
		windows:    budget{most: windowBudget(o.WindowBudget)},
	}
	if g.random == nil {
		g.random = rand.Float64
	}
	for _, p := range o.Exempt {
		if p.Addr().Is4In6() && p.Bits() >= 96 { // addresses are compared unmapped
			p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
		}
		g.exempt = append(g.exempt, p)
	}
	return g
}

// Penalise holds a failed authentication against an address, or against the /64 of an
// IPv6 address. It must be an address that a finished TLS handshake or a token has proven,
// never one from a mere packet: else whoever forges packets could lock others out.
// [Conn.Penalise] knows the right one.
func (g *Guard) Penalise(addr netip.Addr) {
	addr = addr.Unmap().WithZone("")
	if !g.limitsSource(addr) {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	if s := g.sources.keep(keyOf(addr), now); s != nil {
		s.penalise(now)
	} else {
		g.tally.add(LimitSourcesFull)
	}
}

// Counts says how often each limit was reached. All reasons are in it.
func (g *Guard) Counts() map[LimitReason]uint64 { return g.tally.counts() }

// InFlight is how many accepted connections have neither been admitted nor ended.
func (g *Guard) InFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inFlight
}

// BudgetUsed is by how many bytes the windows of all connections have grown.
func (g *Guard) BudgetUsed() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.windows.used
}

// Budget is what BudgetUsed can be at most, in bytes.
func (g *Guard) Budget() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.windows.most
}

func (g *Guard) now() time.Duration { return time.Since(g.start) }

// limitsSource reports whether the limits for one source apply to addr. It never changes.
func (g *Guard) limitsSource(addr netip.Addr) bool {
	if !addr.IsValid() { // a transport without IP addresses, which only tests have
		return false
	}
	for _, p := range g.exempt {
		if p.Contains(addr) {
			return false
		}
	}
	return true
}

// needsProof decides whether a newcomer without a token must show first that it receives
// what is sent to its address. That refuses nobody, so it may go by an address which is
// not proven: what a forger can bring upon another is one more round trip.
func (g *Guard) needsProof(addr netip.Addr) bool {
	g.mu.Lock()
	ask := g.halfOpen >= halfOpenMost || !g.sourceAllows(addr)
	g.mu.Unlock()
	if !ask && g.unverified.Allow() {
		return false
	}
	g.tally.add(LimitRetryToken)
	return true
}

// sourceAllows needs the lock.
func (g *Guard) sourceAllows(addr netip.Addr) bool {
	if !g.limitsSource(addr) {
		return true
	}
	s := g.sources.find(keyOf(addr))
	return s == nil || s.allows(g.now())
}

// These reach nobody: the peer sees CONNECTION_REFUSED.
var (
	errSource = errors.New("too many handshakes or failures from this address")
	errGlobal = errors.New("too many handshakes in flight")
)

// enter is called with the first packet of a connection, before any cryptography. By its
// source a newcomer is refused only if a token has proven that it is there; for the rest
// visit.prove does it, after the TLS handshake.
func (g *Guard) enter(addr netip.Addr, verified bool) (*visit, error) {
	if g.random == nil {
		return nil, errGlobal // the zero Guard
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if verified && !g.sourceAllows(addr) {
		g.tally.add(LimitHandshakeSource)
		return nil, errSource
	}
	if chance := dropChance(g.inFlight); chance >= 1 || chance > 0 && g.random() < chance {
		g.tally.add(LimitHandshakeGlobal)
		return nil, errGlobal
	}
	v := &visit{guard: g, addr: addr, inFlight: true}
	g.inFlight++
	if verified {
		g.charge(v)
	} else {
		v.halfOpen = true
		g.halfOpen++
	}
	return v, nil
}

// charge writes a handshake on its source's account. It needs the lock.
func (g *Guard) charge(v *visit) {
	if !g.limitsSource(v.addr) {
		return
	}
	now := g.now()
	if s := g.sources.keep(keyOf(v.addr), now); s != nil {
		s.charge(now)
		v.charged = true
	} else {
		g.tally.add(LimitSourcesFull)
	}
}

// dropChance is how likely a handshake is refused when so many others are in flight.
func dropChance(inFlight int) float64 {
	switch {
	case inFlight < dropBegin:
		return 0
	case inFlight >= dropAll:
		return 1
	}
	return dropFirst + (1-dropFirst)*float64(inFlight-dropBegin)/(dropAll-dropBegin)
}
