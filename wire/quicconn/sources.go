package quicconn

import (
	"net"
	"net/netip"
	"time"
)

// sourceKey is whom the limits for one source are about: an IPv4 address, or the /64 that
// an IPv6 subscriber gets at least. It holds no pointer, so that a full table costs the
// garbage collector nothing.
type sourceKey struct {
	v6     bool
	prefix [8]byte
}

func keyOf(addr netip.Addr) sourceKey {
	var k sourceKey
	if addr.Is4() {
		b := addr.As4()
		copy(k.prefix[:], b[:])
		return k
	}
	b := addr.As16()
	copy(k.prefix[:], b[:])
	k.v6 = true
	return k
}

// addrOf is the IP address in a, without a zone and not mapped; invalid if there is none.
func addrOf(a net.Addr) netip.Addr {
	u, ok := a.(*net.UDPAddr)
	if !ok {
		return netip.Addr{}
	}
	return u.AddrPort().Addr().Unmap().WithZone("")
}

// source is what is remembered of one. Times are since the start of its Guard.
type source struct {
	key sourceKey
	// handshakes is when the last of its handshakes would have begun if they had come one
	// by one at the permitted rate: a token bucket in one number.
	handshakes time.Duration
	// penalty is when the last of its failures is forgiven.
	penalty time.Duration
}

func (s *source) spent(now time.Duration) bool { return s.handshakes <= now && s.penalty <= now }

func (s *source) allows(now time.Duration) bool {
	return s.penalty-now <= penaltyThreshold && max(s.handshakes, now)+sourceInterval-now <= sourceBurst*sourceInterval
}

func (s *source) charge(now time.Duration) { s.handshakes = max(s.handshakes, now) + sourceInterval }
func (s *source) refund()                  { s.handshakes -= sourceInterval }

func (s *source) penalise(now time.Duration) {
	s.penalty = min(max(s.penalty, now)+penaltyStep, now+penaltyMost)
}

// sources is a table of bounded size. Its owner locks; the zero value is always full.
type sources struct {
	most  int
	index map[sourceKey]int
	list  []source
	hand  int // where sweep goes on
}

func newSources(most int) sources { return sources{most: most, index: make(map[sourceKey]int)} }

// find returns nil for a source with nothing to its account. What it returns is good
// until the next call of keep.
func (t *sources) find(key sourceKey) *source {
	i, ok := t.index[key]
	if !ok {
		return nil
	}
	return &t.list[i]
}

// keep is find that makes an entry. It returns nil when the table is full of entries that
// still matter. What it looks through is bounded, however large the table.
func (t *sources) keep(key sourceKey, now time.Duration) *source {
	if s := t.find(key); s != nil {
		return s
	}
	t.sweep(sweepAlways, now)
	if len(t.list) >= t.most {
		t.sweep(sweepFull, now)
	}
	if len(t.list) >= t.most {
		return nil
	}
	t.index[key] = len(t.list)
	t.list = append(t.list, source{key: key})
	return &t.list[len(t.list)-1]
}

// sweep looks at the next n entries and forgets those that no longer matter.
func (t *sources) sweep(n int, now time.Duration) {
	for range n {
		if t.hand >= len(t.list) {
			t.hand = 0
		}
		if len(t.list) == 0 {
			return
		}
		if !t.list[t.hand].spent(now) {
			t.hand++
			continue
		}
		last := len(t.list) - 1
		delete(t.index, t.list[t.hand].key)
		if t.hand != last {
			t.list[t.hand] = t.list[last]
			t.index[t.list[t.hand].key] = t.hand
		}
		t.list = t.list[:last]
	}
}
