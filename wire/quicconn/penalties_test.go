package quicconn

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestPenaltiesAccumulateBarAndAreForgiven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		for n := range 3 {
			g.Penalise(alice)
			if !allows(g, alice) {
				t.Fatalf("barred after %d failures, want after 4", n+1)
			}
		}
		g.Penalise(alice)
		if allows(g, alice) {
			t.Fatal("4 failures at once do not bar")
		}
		if !allows(g, bob) {
			t.Error("bob pays for alice")
		}
		time.Sleep(penaltyStep - 1)
		if allows(g, alice) {
			t.Error("forgiven too early")
		}
		time.Sleep(time.Nanosecond)
		if !allows(g, alice) {
			t.Error("not forgiven when the threshold is reached from above")
		}
		g.Penalise(alice)
		if allows(g, alice) {
			t.Error("the next failure does not bar again")
		}
		time.Sleep(penaltyThreshold + penaltyStep)
		g.Penalise(alice)
		if !allows(g, alice) {
			t.Error("failures that were forgiven count still")
		}
	})
}

func TestPenaltiesEndAfterTenMinutesAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		for range 10_000 {
			g.Penalise(alice)
		}
		time.Sleep(penaltyMost - penaltyThreshold - 1)
		if allows(g, alice) {
			t.Error("10,000 failures are forgiven too early")
		}
		time.Sleep(time.Nanosecond)
		if !allows(g, alice) {
			t.Error("10,000 failures bar for longer than the most")
		}
	})
}

func TestSourceHasABurstAndARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		try := func() bool { // a handshake that fails at once
			v, err := g.enter(alice, true)
			if err == nil {
				v.end()
			}
			return err == nil
		}
		for n := range sourceBurst {
			if !try() {
				t.Fatalf("handshake %d of a burst of %d is refused", n+1, sourceBurst)
			}
		}
		if try() {
			t.Fatal("the burst has no end")
		}
		if got := g.Counts()[LimitHandshakeSource]; got != 1 {
			t.Errorf("%d refusals counted, want 1", got)
		}
		time.Sleep(time.Second)
		allowed := 0
		for range 100 {
			if try() {
				allowed++
			}
		}
		if allowed != 20 {
			t.Errorf("%d handshakes after one second, want 20", allowed)
		}
	})
}

func TestHandshakesOfNewcomersCountOnceTheirAddressIsProven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		for n := range sourceBurst {
			v := mustEnter(t, g, alice, false)
			for range 2 { // the second call is about nothing
				if !v.prove() {
					t.Fatalf("handshake %d of a burst of %d is refused", n+1, sourceBurst)
				}
			}
			v.end()
		}
		v := mustEnter(t, g, alice, false)
		if v.prove() {
			t.Error("the burst has no end")
		}
		v.end()
		time.Sleep(sourceInterval)
		v = mustEnter(t, g, alice, false)
		if !v.prove() {
			t.Error("refused after the time of one handshake")
		}
		v.end()
	})
}

func TestAdmittedPeersAreNotHeldAgainstTheirSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		for n := range 20 * sourceBurst {
			v, err := g.enter(alice, n%2 == 0)
			if err != nil || !v.prove() {
				t.Fatalf("peer %d of a site is refused: %v", n, err)
			}
			v.admit()
			v.admit() // once is enough
		}
		if v := mustEnter(t, g, alice, true); g.sources.find(keyOf(alice)).handshakes > sourceInterval {
			t.Errorf("%d admitted peers have left a debt", 20*sourceBurst)
		} else {
			v.end()
		}
	})
}

func TestExemptPrefixesHaveNoLimitsForOneSource(t *testing.T) {
	g := NewGuard(GuardOptions{Exempt: []netip.Prefix{
		netip.MustParsePrefix("192.0.2.1/32"), netip.MustParsePrefix("2001:db8::/32"), netip.MustParsePrefix("::ffff:10.0.0.0/104"),
	}})
	for _, c := range []struct {
		addr   string
		exempt bool
	}{
		{"192.0.2.1", true},
		{"::ffff:192.0.2.1", true},
		{"192.0.2.2", false},
		{"2001:db8:1::1", true},
		{"2001:db9::1", false},
		{"10.9.9.9", true},
		{"11.0.0.1", false},
	} {
		addr := netip.MustParseAddr(c.addr)
		for range 4 {
			g.Penalise(addr)
		}
		if got := allows(g, addr.Unmap()); got != c.exempt {
			t.Errorf("%s is let in after four failures: %v, want %v", c.addr, got, c.exempt)
		}
	}
	for range 2 * sourceBurst {
		mustEnter(t, g, alice, true).end()
	}
}
