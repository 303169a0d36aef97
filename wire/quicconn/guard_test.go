package quicconn

import (
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// noChance is a random source for tests in which chance must have no say.
func noChance(t *testing.T) func() float64 {
	return func() float64 {
		t.Error("the early drop was asked, want it far away")
		return 0
	}
}

func TestEarlyDropFollowsItsCurve(t *testing.T) {
	const tries = 20_000
	for _, inFlight := range []int{0, 49, 50, 51, 100, 153, 200, 255, 256, 1000} {
		want := 0.0
		switch {
		case inFlight >= 256:
			want = 1
		case inFlight >= 50: // 30 in 100, rising evenly to 100 in 100
			want = (30 + 70*float64(inFlight-50)/(256-50)) / 100
		}
		g := NewGuard(GuardOptions{Random: rand.New(rand.NewPCG(1, uint64(inFlight))).Float64})
		g.inFlight = inFlight
		refused := 0
		for n := range tries {
			v, err := g.enter(source4(n), true)
			if err != nil {
				refused++
				continue
			}
			v.end()
		}
		got := float64(refused) / tries
		margin := 4 * math.Sqrt(want*(1-want)/tries) // four standard deviations; the seed is fixed
		if math.Abs(got-want) > margin {
			t.Errorf("%d in flight: %.4f refused, want %.4f", inFlight, got, want)
		}
		if n := g.Counts()[LimitHandshakeGlobal]; n != uint64(refused) {
			t.Errorf("%d in flight: %d counted of %d refused", inFlight, n, refused)
		}
		if g.InFlight() != inFlight {
			t.Errorf("%d in flight are left, want %d", g.InFlight(), inFlight)
		}
	}
}

func TestEarlyDropGoesByTheNumberThatChanceGives(t *testing.T) {
	for _, c := range []struct {
		inFlight int
		random   float64
		refused  bool
	}{
		{49, 0, false},
		{50, 0, true},
		{50, 0.2999, true},
		{50, 0.3, false},
		{153, 0.6499, true},
		{153, 0.6501, false},
		{255, 0.9999, false},
		{256, 0.9999, true},
		{256, 1, true},
	} {
		g := NewGuard(GuardOptions{Random: func() float64 { return c.random }})
		g.inFlight = c.inFlight
		if _, err := g.enter(alice, true); (err != nil) != c.refused {
			t.Errorf("%d in flight, chance %v: %v, want a refusal: %v", c.inFlight, c.random, err, c.refused)
		}
	}
}

func TestInFlightNeverPassesItsMostAndIsReleased(t *testing.T) {
	g := NewGuard(GuardOptions{Random: func() float64 { return math.Nextafter(1, 0) }})
	var in []*visit
	for n := range 10 * dropAll {
		if v, err := g.enter(source4(n), true); err == nil {
			in = append(in, v)
		}
	}
	if len(in) != dropAll || g.InFlight() != dropAll {
		t.Fatalf("%d let in, %d in flight, want %d", len(in), g.InFlight(), dropAll)
	}
	for i, v := range in {
		if i%2 == 0 {
			v.admit()
		}
		v.end()
		v.end()
	}
	if g.InFlight() != 0 {
		t.Errorf("%d in flight after all have ended", g.InFlight())
	}
}

func TestAnUnprovenAddressIsNeverRefusedNorCharged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{Random: noChance(t)})
		for range 10_000 { // forged packets in alice's name
			if g.needsProof(alice) {
				continue
			}
			mustEnter(t, g, alice, false).end()
		}
		if len(g.sources.list) != 0 {
			t.Errorf("forged packets are on the account of %d sources", len(g.sources.list))
		}
		v := mustEnter(t, g, alice, true) // her own, with a token
		v.end()
		for range 4 {
			g.Penalise(alice)
		}
		// She is barred now, but only if it is she.
		if !g.needsProof(alice) {
			t.Error("a barred source need not prove that it is that")
		}
		mustEnter(t, g, alice, false).end()
		if _, err := g.enter(alice, true); err == nil {
			t.Error("a barred source is let in with its token")
		}
		v = mustEnter(t, g, alice, false)
		if v.prove() {
			t.Error("a barred source goes on after its TLS handshake")
		}
		v.end()
		if got := g.Counts()[LimitHandshakeSource]; got != 2 {
			t.Errorf("%d refusals counted, want 2", got)
		}
	})
}

func TestForgedHandshakesLeaveRoomForTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{Random: noChance(t)})
		var forged []*visit
		for n := range 1000 {
			if addr := source4(n); !g.needsProof(addr) {
				forged = append(forged, mustEnter(t, g, addr, false))
			}
		}
		if len(forged) != halfOpenMost {
			t.Errorf("%d forged handshakes are half open, want %d", len(forged), halfOpenMost)
		}
		if got := g.Counts()[LimitRetryToken]; got != uint64(1000-len(forged)) {
			t.Errorf("%d proofs asked for, want %d", got, 1000-len(forged))
		}
		mustEnter(t, g, alice, true).end()
		forged[0].end()
		forged[1].prove()
		for range 2 {
			if g.needsProof(bob) {
				t.Error("no room after two of them are gone")
			}
			mustEnter(t, g, bob, false)
		}
		if !g.needsProof(bob) {
			t.Error("more room than two have left")
		}
	})
}

func TestProofIsAskedForAboveTheRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		count := func() (let int) {
			for range 1000 {
				if !g.needsProof(alice) {
					let++
				}
			}
			return let
		}
		if let := count(); let != unverifiedBurst {
			t.Errorf("%d without proof at once, want %d", let, unverifiedBurst)
		}
		time.Sleep(time.Second)
		if let := count(); let != unverifiedRate {
			t.Errorf("%d without proof after a second, want %d", let, unverifiedRate)
		}
	})
}

func TestTheZeroGuardAdmitsNobody(t *testing.T) {
	var g Guard
	if _, err := g.enter(alice, true); err == nil {
		t.Error("the zero Guard let somebody in")
	}
	g.Penalise(alice)
	if g.InFlight() != 0 || g.BudgetUsed() != 0 || g.Budget() != 0 {
		t.Error("the zero Guard holds something")
	}
	if l, err := Listen("127.0.0.1:0", ListenOptions{Guard: &g}); err == nil {
		l.Close()
		t.Error("Listen took the zero Guard")
	}
}

func TestCountsHaveEveryReasonFromTheStart(t *testing.T) {
	want := map[LimitReason]uint64{
		"retry_token": 0, "handshake_source": 0, "handshake_global": 0, "memory": 0, "sources_full": 0,
	}
	g := NewGuard(GuardOptions{})
	if got := g.Counts(); !cmp.Equal(got, want) {
		t.Errorf("counts %v, want %v", got, want)
	}
	for _, r := range limitReasons {
		g.tally.add(r)
		want[r]++
		if got := g.Counts(); !cmp.Equal(got, want) {
			t.Errorf("counts %v, want %v", got, want)
		}
	}
}

func FuzzSourcesOfAnyAddress(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "fe80::1%eth0", "::", ""} {
		addr, _ := netip.ParseAddr(s)
		b, _ := addr.MarshalBinary()
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var addr netip.Addr
		if addr.UnmarshalBinary(b) != nil {
			return
		}
		g := NewGuard(GuardOptions{})
		for range 4 {
			g.Penalise(addr)
		}
		addr = addr.Unmap().WithZone("")
		if allows(g, addr) == addr.IsValid() {
			t.Errorf("four failures of %s do not bar it", addr)
		}
		if len(g.sources.list) > 1 {
			t.Errorf("%s is %d sources", addr, len(g.sources.list))
		}
	})
}
