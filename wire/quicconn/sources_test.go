package quicconn

import (
	"encoding/binary"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var (
	alice = netip.MustParseAddr("192.0.2.1")
	bob   = netip.MustParseAddr("192.0.2.2")
)

// source4 is the n-th of many IPv4 addresses.
func source4(n int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 10<<24+uint32(n))
	return netip.AddrFrom4(b)
}

func allows(g *Guard, addr netip.Addr) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.sourceAllows(addr)
}

func mustEnter(t *testing.T, g *Guard, addr netip.Addr, verified bool) *visit {
	t.Helper()
	v, err := g.enter(addr, verified)
	if err != nil {
		t.Fatalf("enter of %s (verified: %v): %v", addr, verified, err)
	}
	return v
}

func TestASourceIsAnAddressOrA64AndNeverItsPort(t *testing.T) {
	cases := []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1:1", "192.0.2.1:2", true},
		{"192.0.2.1:1", "192.0.2.2:1", false},
		{"[::ffff:192.0.2.1]:1", "192.0.2.1:1", true},
		{"[2001:db8::1]:1", "[2001:db8::2:0:0:1]:9", true},
		{"[2001:db8::1]:1", "[2001:db8:0:1::1]:1", false},
		{"[fe80::1%eth0]:1", "[fe80::1%eth1]:1", true},
		{"[c000:201::]:1", "192.0.2.1:1", false}, // the same leading bytes
	}
	for _, c := range cases {
		key := func(s string) sourceKey {
			return keyOf(addrOf(net.UDPAddrFromAddrPort(netip.MustParseAddrPort(s))))
		}
		if same := key(c.a) == key(c.b); same != c.same {
			t.Errorf("%s and %s are one source: %v, want %v", c.a, c.b, same, c.same)
		}
	}
	if addrOf(&net.UnixAddr{Name: "x", Net: "unixgram"}).IsValid() {
		t.Error("an address without an IP has become one")
	}
}

func TestFullTableRefusesNobodyAndCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{})
		before := heap()
		for n := range sourcesMost {
			for range 4 {
				g.Penalise(source4(n))
			}
		}
		t.Logf("a table of %d sources holds %d KiB", sourcesMost, (heap()-before)>>10)
		if got := g.Counts()[LimitSourcesFull]; got != 0 || len(g.sources.list) != sourcesMost {
			t.Fatalf("%d sources, %d not kept, before the table was full", len(g.sources.list), got)
		}
		for range 4 {
			g.Penalise(alice)
		}
		mustEnter(t, g, alice, true).end()
		if got := g.Counts()[LimitSourcesFull]; got != 5 {
			t.Errorf("%d times a source was not kept, want 5", got)
		}
		if allows(g, source4(0)) || allows(g, source4(sourcesMost-1)) {
			t.Error("who was in the table is forgotten")
		}
		if len(g.sources.list) != sourcesMost || len(g.sources.index) != sourcesMost {
			t.Errorf("table of %d and %d entries, want %d", len(g.sources.list), len(g.sources.index), sourcesMost)
		}
		time.Sleep(4 * penaltyStep) // everybody is forgiven: there is room again
		for range 4 {
			g.Penalise(alice)
		}
		if allows(g, alice) {
			t.Error("a full table of nothing keeps newcomers out of it")
		}
		runtime.KeepAlive(g)
	})
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestTableForgetsOnlyWhatIsSpent compares the table with a plain map that forgets nothing.
func TestTableForgetsOnlyWhatIsSpent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const most = 8
		table := newSources(most)
		model := map[sourceKey]source{}
		now := time.Duration(0)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			now += time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(t, "wait"))
			key := keyOf(source4(rapid.IntRange(0, 15).Draw(t, "source")))
			live := 0
			for _, s := range model {
				if !s.spent(now) {
					live++
				}
			}
			s := table.keep(key, now)
			if s == nil {
				if m, known := model[key]; known && !m.spent(now) {
					t.Fatalf("a source that matters is not in the table")
				}
				if live < most {
					t.Fatalf("no room with %d of %d sources that matter", live, most)
				}
				continue
			}
			m := model[key]
			if m.spent(now) {
				m = source{key: key}
			}
			if got := s.penalty - now; max(got, 0) != max(m.penalty-now, 0) {
				t.Fatalf("penalty of %v, want %v", got, m.penalty-now)
			}
			if s.allows(now) != m.allows(now) {
				t.Fatalf("allows: %v, want %v", s.allows(now), m.allows(now))
			}
			if rapid.Bool().Draw(t, "fails") {
				s.penalise(now)
				m.penalise(now)
			} else {
				s.charge(now)
				m.charge(now)
			}
			model[key] = m
			if len(table.list) > most || len(table.list) != len(table.index) {
				t.Fatalf("table of %d entries, index of %d, want at most %d", len(table.list), len(table.index), most)
			}
			for i, e := range table.list {
				if table.index[e.key] != i {
					t.Fatalf("entry %d is indexed as %d", i, table.index[e.key])
				}
			}
		}
	})
}
