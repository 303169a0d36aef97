package client

import (
	"errors"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/wire"
)

// naiveReceived keeps everything that arrived, and works each answer out from it.
type naiveReceived struct {
	all   []wire.Event
	last  uint64
	taken uint64
}

func (n *naiveReceived) after(seq uint64) (rest []wire.Event) {
	for _, e := range n.all {
		if e.Seq > max(seq, n.taken) {
			rest = append(rest, e)
		}
	}
	return rest
}

// follow reads to the end of what is there, and turns the answers back into events.
func (n *naiveReceived) follow(t *testing.T, r *received, after uint64, limit int) (got []wire.Event) {
	t.Helper()
	for {
		resp, ok, err := r.read(after, limit)
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if !ok {
			return got
		}
		if g := resp.Gap; g != nil && after < n.taken {
			if g.From != after+1 || g.To != n.taken {
				t.Fatalf("read(%d) when %d were taken: gap %+v", after, n.taken, g)
			}
		} else if g != nil {
			got = append(got, wire.Event{Seq: g.To, Gap: g})
		}
		size := 0
		for i := range resp.Chunks {
			size += len(resp.Chunks[i].Data)
			got = append(got, wire.Event{Seq: resp.Chunks[i].Seq, Chunk: &resp.Chunks[i]})
		}
		if len(resp.Chunks) > 1 && size > limit {
			t.Fatalf("read(%d, %d) gave %d bytes in %d chunks", after, limit, size, len(resp.Chunks))
		}
		if resp.Exit != nil {
			return append(got, wire.Event{Seq: resp.Next, Exit: resp.Exit})
		}
		if resp.Next <= after {
			t.Fatalf("read(%d) goes on from %d", after, resp.Next)
		}
		after = resp.Next
	}
}

func TestReceivedAnswersAsANaiveOneDoes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 3))
	for range 100 {
		r, n := &received{limit: 1 << 20}, &naiveReceived{}
		var acked uint64
		for step := range 80 {
			switch op := rnd.IntN(8); {
			case op < 4:
				e := wire.Event{Seq: n.last + 1, Chunk: &wire.Chunk{Seq: n.last + 1, Stream: wire.Stdout, Data: make([]byte, 1+rnd.IntN(200))}}
				if rnd.IntN(10) == 0 {
					g := &wire.Gap{From: n.last + 1, To: n.last + 1 + uint64(rnd.IntN(5)), Bytes: 7}
					e = wire.Event{Seq: g.To, Gap: g}
				}
				if step > 70 && rnd.IntN(3) == 0 {
					e = wire.Event{Seq: n.last + 1, Exit: &wire.ExitStatus{Code: 1, Cause: wire.CauseExited}}
				}
				if err := r.add(e); (err != nil) != (len(n.all) > 0 && n.all[len(n.all)-1].Exit != nil) {
					t.Fatalf("add %+v: %v", e, err)
				} else if err == nil {
					n.all, n.last = append(n.all, e), e.Seq
				}
			case op == 4:
				to := uint64(rnd.IntN(int(n.last) + 5))
				r.take(to)
				n.taken = max(n.taken, min(to, n.last))
			case op == 5:
				if a := r.toAck(); a != 0 && (a <= acked || a != n.taken) {
					t.Fatalf("acknowledges %d after %d, when %d were taken", a, acked, n.taken)
				} else if a != 0 {
					acked = a
				}
			default:
				after := uint64(rnd.IntN(int(n.last) + 1))
				got, want := n.follow(t, r, after, 1+rnd.IntN(500)), n.after(after)
				if exit := len(n.all) > 0 && n.all[len(n.all)-1].Exit != nil; exit && len(want) == 0 {
					want = n.all[len(n.all)-1:] // the end stays visible to who has seen it
				}
				if len(got) != len(want) {
					t.Fatalf("read(%d) when %d were taken: %d events, want %d", after, n.taken, len(got), len(want))
				}
				for i := range got {
					if got[i].Seq != want[i].Seq || (got[i].Exit == nil) != (want[i].Exit == nil) || (got[i].Gap == nil) != (want[i].Gap == nil) {
						t.Fatalf("read(%d): event %+v, want %+v", after, got[i], want[i])
					}
				}
			}
		}
	}
}

func chunkOf(seq uint64, size int) wire.Event {
	return wire.Event{Seq: seq, Chunk: &wire.Chunk{Seq: seq, Stream: wire.Stdout, Data: make([]byte, size)}}
}

func TestReceivedWaitsForRoomAndEndsWithTheCircuit(t *testing.T) {
	t.Run("of large chunks", func(t *testing.T) { testRoom(t, 936, 10, 13) })
	t.Run("of empty ones, which cost something too", func(t *testing.T) { testRoom(t, 0, 157, 160) })
}

func testRoom(t *testing.T, size int, full, later uint64) {
	synctest.Test(t, func(t *testing.T) {
		r := &received{limit: 10_000}
		added := make(chan error)
		go func() {
			defer close(added)
			for seq := uint64(1); ; seq++ {
				if err := r.add(chunkOf(seq, size)); err != nil || r.err != nil {
					return
				}
			}
		}()
		arrived := func() uint64 {
			synctest.Wait()
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.last
		}
		if n := arrived(); n != full {
			t.Errorf("%d chunks went into 10000, want %d", n, full)
		}
		r.take(3)
		if n := arrived(); n != later {
			t.Errorf("after 3 were taken %d have arrived, want %d", n, later)
		}
		r.end(wire.ErrLost)
		<-added
		if _, ok, err := r.read(3, 1<<20); !ok || !errors.Is(err, wire.ErrLost) {
			t.Errorf("read after the end: %v, %v, want what is there, and the reason", ok, err)
		}
	})
}

func TestReceivedRefusesNumbersThatDoNotFollow(t *testing.T) {
	for _, c := range []struct {
		name  string
		after uint64
		first []wire.Event
		bad   wire.Event
	}{
		{"a hole at the beginning", 0, nil, chunkOf(2, 1)},
		{"a hole", 0, []wire.Event{chunkOf(1, 1)}, chunkOf(3, 1)},
		{"a repeat", 0, []wire.Event{chunkOf(1, 1), chunkOf(2, 1)}, chunkOf(2, 1)},
		{"a gap that leaves a hole", 0, []wire.Event{chunkOf(1, 1)}, wire.Event{Seq: 9, Gap: &wire.Gap{From: 5, To: 9}}},
		{"a gap over what came", 0, []wire.Event{chunkOf(1, 1)}, wire.Event{Seq: 9, Gap: &wire.Gap{From: 1, To: 9}}},
		{"an end with a hole", 0, []wire.Event{chunkOf(1, 1)}, wire.Event{Seq: 3, Exit: &wire.ExitStatus{}}},
		{"an end before what came", 5, []wire.Event{chunkOf(6, 1)}, wire.Event{Seq: 6, Exit: &wire.ExitStatus{}}},
		{"output after the end", 0, []wire.Event{{Seq: 1, Exit: &wire.ExitStatus{}}}, chunkOf(2, 1)},
		{"a second end", 0, []wire.Event{{Seq: 1, Exit: &wire.ExitStatus{}}}, wire.Event{Seq: 2, Exit: &wire.ExitStatus{}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &received{limit: 1000, last: c.after, taken: c.after, acked: c.after}
			for _, e := range c.first {
				if err := r.add(e); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.add(c.bad); wire.CodeOf(err) != wire.CodeProtocol {
				t.Errorf("add %+v: %v, want a protocol error", c.bad, err)
			}
		})
	}
}

func TestAcknowledgementComesInTimeForTheWindow(t *testing.T) {
	r := &received{limit: 2 * wire.OutputWindow}
	const chunk = wire.MaxChunk
	for seq := uint64(1); seq <= 1000; seq++ {
		if err := r.add(chunkOf(seq, chunk)); err != nil {
			t.Fatal(err)
		}
		if seq%50 != 0 {
			continue // the reader lags a little
		}
		for at := seq - 49; at < seq; at++ {
			if r.take(at) == now {
				r.toAck()
			}
			if held := int(at-r.acked) * (chunk + 64); held > wire.OutputWindow/8 {
				t.Fatalf("%d bytes were taken and not acknowledged", held)
			}
		}
		if r.take(seq); r.toAck() != seq {
			t.Fatalf("a reader that has everything did not acknowledge %d", seq)
		}
	}
}
