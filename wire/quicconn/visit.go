package quicconn

import (
	"context"
	"net/netip"

	"github.com/postern-relay/postern/wire"
)

// visit is what one accepted connection has from its Guard and owes back. All fields below
// addr are under the Guard's lock, which is never held while quic-go is called: quic-go
// calls grow under locks of its own. The nil visit, as of a dialled connection, has
// nothing and gets nothing.
type visit struct {
	guard *Guard
	addr  netip.Addr // of the first packet

	inFlight bool   // counted as a handshake in flight
	halfOpen bool   // its address is not proven
	charged  bool   // the handshake is on its source's account
	admitted bool   // the peer has proven who it is
	ended    bool   // what it had was given back
	window   uint64 // bytes taken from the budget
}

// visitKey finds the visit in a connection's context.
type visitKey struct{}

// visitOf is nil, which allows nothing, for a connection without one.
func visitOf(ctx context.Context) *visit {
	v, _ := ctx.Value(visitKey{}).(*visit)
	return v
}

// prove notes that the TLS handshake is done, which shows that the peer receives what is
// sent to its address. It reports whether the limits of that source let it go on.
func (v *visit) prove() bool {
	if v == nil {
		return true
	}
	g := v.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if !v.halfOpen { // proven by a token, and charged then; or ended
		return true
	}
	v.halfOpen = false
	g.halfOpen--
	if !g.sourceAllows(v.addr) {
		g.tally.add(LimitHandshakeSource)
		return false
	}
	g.charge(v)
	return true
}

// admit notes that the peer has proven who it is. The handshake goes off its source's
// account: a site of a thousand executors may come back at once from one address.
func (v *visit) admit() {
	if v == nil {
		return
	}
	g := v.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.ended || v.admitted {
		return
	}
	v.admitted = true
	v.leave()
	if s := g.sources.find(keyOf(v.addr)); v.charged && s != nil {
		s.refund()
	}
}

// leave needs the lock.
func (v *visit) leave() {
	if v.inFlight {
		v.inFlight = false
		v.guard.inFlight--
	}
	if v.halfOpen {
		v.halfOpen = false
		v.guard.halfOpen--
	}
}

// end gives everything back. Further calls do nothing.
func (v *visit) end() {
	g := v.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if v.ended {
		return
	}
	v.ended = true
	v.leave()
	g.windows.give(v.window)
	v.window = 0
}

// grow reports whether the connection's window may grow, and takes it from the budget.
// After end it may not: nobody would give it back.
func (v *visit) grow(delta uint64) bool {
	if v == nil {
		return false
	}
	g := v.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	if !v.admitted || v.ended {
		return false
	}
	if !g.windows.take(delta) {
		g.tally.add(LimitMemory)
		return false
	}
	v.window += delta
	return true
}

// Penalise holds a failure to authenticate against the address that the connection came
// from, by the code with which it is refused: unauthorized, protocol, timeout and late
// count, all others are not the peer's fault and do nothing. It is for the accepting side
// and does not close the connection. Whoever proves a key that is merely not admitted yet,
// and may be tomorrow, should not be penalised.
func (c *Conn) Penalise(reason wire.Code) {
	if c.visit == nil {
		return
	}
	switch reason {
	case wire.CodeUnauthorized, wire.CodeProtocol, wire.CodeTimeout, wire.CodeLate:
		c.visit.guard.Penalise(c.visit.addr)
	}
}
