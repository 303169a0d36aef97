package quicconn

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/postern-relay/postern/wire"
)

func TestOnlyThePeersOwnFailuresArePenalised(t *testing.T) {
	for code := wire.Code(0); code <= 64; code++ {
		g := NewGuard(GuardOptions{})
		c := &Conn{visit: mustEnter(t, g, alice, true)}
		for range 4 {
			c.Penalise(code)
		}
		barred := !allows(g, alice)
		want := code == wire.CodeUnauthorized || code == wire.CodeProtocol || code == wire.CodeTimeout || code == wire.CodeLate
		if barred != want {
			t.Errorf("four times %v bar: %v, want %v", code, barred, want)
		}
	}
	(&Conn{}).Penalise(wire.CodeUnauthorized) // of the dialling side
}

// TestVisitsGiveBackWhatTheyTook does everything that can happen to connections in any
// order and looks at the sums.
func TestVisitsGiveBackWhatTheyTook(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewGuard(GuardOptions{WindowBudget: 1000, Random: func() float64 { return 0.5 }})
		var visits []*visit
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if len(visits) == 0 || rapid.IntRange(0, 2).Draw(t, "new") == 0 {
				addr := source4(rapid.IntRange(0, 5).Draw(t, "source"))
				if v, err := g.enter(addr, rapid.Bool().Draw(t, "verified")); err == nil {
					visits = append(visits, v)
				}
				continue
			}
			v := visits[rapid.IntRange(0, len(visits)-1).Draw(t, "which")]
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				v.prove()
			case 1:
				v.admit()
			case 2:
				before, ended := g.BudgetUsed(), v.ended
				grew := v.grow(uint64(rapid.IntRange(0, 600).Draw(t, "delta")))
				if grew && (ended || !v.admitted) || !grew && g.BudgetUsed() != before {
					t.Fatalf("a window grew: %v (admitted %v, ended %v)", grew, v.admitted, ended)
				}
			case 3:
				v.end()
			case 4:
				g.Penalise(v.addr)
			}
			inFlight, halfOpen, window := 0, 0, uint64(0)
			for _, v := range visits {
				if v.inFlight {
					inFlight++
				}
				if v.halfOpen {
					halfOpen++
				}
				window += v.window
			}
			if g.inFlight != inFlight || g.halfOpen != halfOpen || g.windows.used != window || window > 1000 {
				t.Fatalf("guard has %d, %d, %d, its visits %d, %d, %d", g.inFlight, g.halfOpen, g.windows.used, inFlight, halfOpen, window)
			}
		}
		for _, v := range visits {
			v.end()
		}
		if g.inFlight != 0 || g.halfOpen != 0 || g.windows.used != 0 {
			t.Fatalf("%d in flight, %d half open, %d bytes are left", g.inFlight, g.halfOpen, g.windows.used)
		}
	})
}
