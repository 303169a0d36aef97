package quicconn

import (
	"io"
	"math"
	"sync"
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestDefaultBudgetIsAQuarterOfWhatThereIs(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		physical uint64
		limit    int64
		want     uint64
	}{
		{16 * gib, math.MaxInt64, 4 * gib},
		{16 * gib, 2 * gib, gib / 2},
		{2 * gib, 16 * gib, gib / 2},
		{0, math.MaxInt64, budgetLeast}, // unknown
		{0, gib, gib / 4},
		{128 << 20, math.MaxInt64, budgetLeast},
		{16 * gib, 1, budgetLeast},
		{math.MaxUint64, math.MaxInt64, math.MaxUint64 / 4},
	} {
		if got := memoryShare(c.physical, c.limit); got != c.want {
			t.Errorf("share of %d with a limit of %d: %d, want %d", c.physical, c.limit, got, c.want)
		}
	}
	for option, want := range map[int64]uint64{1: 1, 1 << 40: 1 << 40, -1: 0, math.MinInt64: 0} {
		if got := NewGuard(GuardOptions{WindowBudget: option}).Budget(); got != want {
			t.Errorf("budget of option %d: %d, want %d", option, got, want)
		}
	}
	if got := NewGuard(GuardOptions{}).Budget(); got < budgetLeast {
		t.Errorf("default budget of %d, want at least %d", got, budgetLeast)
	}
	t.Logf("this machine has %d MiB, its default budget is %d MiB", physicalMemory()>>20, NewGuard(GuardOptions{}).Budget()>>20)
}

func TestBudgetGivesAllOrNothing(t *testing.T) {
	b := budget{most: 10}
	for _, c := range []struct {
		take uint64
		ok   bool
	}{{4, true}, {7, false}, {math.MaxUint64, false}, {6, true}, {0, true}, {1, false}} {
		if ok := b.take(c.take); ok != c.ok {
			t.Errorf("take of %d with %d used: %v, want %v", c.take, b.used, ok, c.ok)
		}
	}
	b.give(6)
	if b.used != 4 || !b.take(6) {
		t.Errorf("%d used after giving back", b.used)
	}
	if (&budget{}).take(1) {
		t.Error("the zero budget gave something")
	}
}

func TestBudgetIsExactWhateverRaces(t *testing.T) {
	const most = 1 << 20
	g := NewGuard(GuardOptions{WindowBudget: most})
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			for m := range 500 {
				v, err := g.enter(source4(n<<16+m), true)
				if err != nil {
					t.Error(err)
					return
				}
				var one sync.WaitGroup
				one.Go(v.admit)
				for range 4 {
					one.Go(func() { v.grow(64 << 10) })
				}
				one.Go(func() {
					if g.BudgetUsed() > most {
						t.Error("more than there is was given away")
					}
				})
				one.Go(v.end)
				one.Go(v.end)
				one.Wait()
			}
		})
	}
	all.Wait()
	if g.BudgetUsed() != 0 || g.InFlight() != 0 {
		t.Errorf("%d bytes and %d handshakes are left", g.BudgetUsed(), g.InFlight())
	}
}

// TestWindowsShareABudgetAndGiveItBack moves more through several connections at once than
// the budget lets their windows grow to.
func TestWindowsShareABudgetAndGiveItBack(t *testing.T) {
	const most, size, connections = 256 << 10, 8 << 20, 4
	g := NewGuard(GuardOptions{WindowBudget: most})
	l, dial := listen(t, ListenOptions{Guard: g})
	var accepted []*Conn
	var all sync.WaitGroup
	for range connections {
		a, b := connect(t, l, dial)
		b.Admit()
		accepted = append(accepted, b)
		x, y := openPair(t, a, b)
		all.Go(func() {
			_, _ = x.Write(make([]byte, size))
			_ = x.CloseWrite()
		})
		all.Go(func() {
			if n, err := io.Copy(io.Discard, y); n != size || err != nil {
				t.Errorf("%d bytes came through, %v, want %d", n, err, size)
			}
			if used := g.BudgetUsed(); used > most {
				t.Errorf("%d bytes used of %d", used, most)
			}
		})
	}
	all.Wait()
	if g.BudgetUsed() == 0 || g.Counts()[LimitMemory] == 0 {
		t.Errorf("%d bytes used, %d times short: the budget was not reached", g.BudgetUsed(), g.Counts()[LimitMemory])
	}
	for _, b := range accepted {
		_ = b.Close(wire.CodeShutdown, "")
	}
	if used := g.BudgetUsed(); used != 0 {
		t.Errorf("%d bytes were not given back", used)
	}
	grows := listenConfig(ListenOptions{}).AllowConnectionWindowIncrease
	if grows(accepted[0].quic, 1) || g.BudgetUsed() != 0 {
		t.Error("a connection that has ended takes from the budget")
	}
}
