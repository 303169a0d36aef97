package execlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/wire"
)

func inMemory(window, keep int) *Log { return New(Config{Window: window, Keep: keep}) }

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// naiveLog keeps everything and works each answer out from the rules of Config's comments.
type naiveLog struct {
	window, keep int
	all          []wire.Chunk // number n is all[n-1]
	first        int          // lowest that is kept
	acked        int
	free         bool
	exit         bool
}

func (m *naiveLog) costFrom(seq int) (sum int) {
	for _, c := range m.all[seq-1:] {
		sum += len(c.Data) + 64
	}
	return sum
}

func (m *naiveLog) forget() {
	for m.first <= len(m.all) {
		newer := m.first < len(m.all) && m.costFrom(m.first+1) >= m.keep
		if m.first == len(m.all) {
			newer = m.keep <= 0
		}
		mayGo := m.first <= m.acked || m.free && m.costFrom(m.first) > m.window
		if !newer || !mayGo {
			return
		}
		m.acked = max(m.acked, m.first)
		m.first++
	}
}

func (m *naiveLog) blocked() bool {
	return !m.free && m.acked < len(m.all) && m.costFrom(m.acked+1) >= m.window
}

func (m *naiveLog) last() int {
	if m.exit {
		return len(m.all) + 1
	}
	return len(m.all)
}

// follow reads everything after a number, checks each answer, and returns what came.
func follow(l *Log, after uint64, limit int) (chunks []wire.Chunk, gap *wire.Gap, exit bool, err error) {
	for {
		r := l.Read(after, limit)
		if r.Next < after && after <= l.last {
			return nil, nil, false, fmt.Errorf("Read(%d) goes back to %d", after, r.Next)
		}
		size := 0
		for _, c := range r.Chunks {
			size += len(c.Data)
		}
		if len(r.Chunks) > 1 && size > limit {
			return nil, nil, false, fmt.Errorf("Read(%d, %d) gave %d bytes in %d chunks", after, limit, size, len(r.Chunks))
		}
		if r.Gap != nil {
			if gap != nil || len(chunks) > 0 {
				return nil, nil, false, fmt.Errorf("gap %+v after what was kept", r.Gap)
			}
			gap = r.Gap
		}
		chunks = append(chunks, r.Chunks...)
		if r.Exit != nil {
			return chunks, gap, true, nil
		}
		if r.Next == after || len(r.Chunks) == 0 {
			return chunks, gap, false, nil
		}
		after = r.Next
	}
}

func (m *naiveLog) compare(l *Log, after, limit int) error {
	chunks, gap, exit, err := follow(l, uint64(after), limit)
	if err != nil {
		return err
	}
	from := max(after+1, m.first)
	if lost := from > after+1; lost != (gap != nil) || lost && (gap.From != uint64(after+1) || gap.To != uint64(m.first-1)) {
		return fmt.Errorf("Read(%d): gap %+v, first kept is %d", after, gap, m.first)
	}
	if gap != nil && after == 0 {
		bytes := 0
		for _, c := range m.all[:m.first-1] {
			bytes += len(c.Data)
		}
		if gap.Bytes != uint64(bytes) {
			return fmt.Errorf("Read(0): gap of %d bytes, want %d", gap.Bytes, bytes)
		}
	}
	want := m.all[min(from-1, len(m.all)):]
	if len(chunks) != len(want) || exit != m.exit {
		return fmt.Errorf("Read(%d): %d chunks and exit %v, want %d and %v", after, len(chunks), exit, len(want), m.exit)
	}
	for i, c := range chunks {
		if w := want[i]; c.Seq != w.Seq || c.Stream != w.Stream || !bytes.Equal(c.Data, w.Data) {
			return fmt.Errorf("Read(%d): chunk %d differs from the one that was appended", after, c.Seq)
		}
	}
	return nil
}

func TestLogInMemoryAnswersAsANaiveOneDoes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 60 {
		m := &naiveLog{window: 200 + r.IntN(3000), keep: r.IntN(1500), first: 1}
		l := inMemory(m.window, m.keep)
		largest := 0
		for range 120 {
			switch op := r.IntN(10); {
			case op < 5 && !m.exit && !m.blocked():
				data := make([]byte, 1+r.IntN(300))
				if r.IntN(3) > 0 {
					data = data[:min(len(data), 3)]
				}
				for i := range data {
					data[i] = byte(r.Uint32())
				}
				largest = max(largest, len(data)+64)
				m.all = append(m.all, wire.Chunk{Seq: uint64(len(m.all) + 1), Stream: wire.Stdout + wire.OutputStream(r.IntN(2)), Data: bytes.Clone(data)})
				l.Append(m.all[len(m.all)-1].Stream, data)
			case op < 8:
				seq := r.IntN(m.last() + 10)
				m.acked = max(m.acked, min(seq, m.last()))
				l.Ack(uint64(seq))
			case op == 8 && r.IntN(4) == 0:
				m.free = !m.free
				l.SetFree(m.free)
			case op == 9 && !m.exit && r.IntN(20) == 0:
				m.exit = true
				l.End(wire.ExitStatus{Cause: wire.CauseExited})
			}
			m.forget()
			if err := m.compare(l, r.IntN(m.last()+1), 1+r.IntN(600)); err != nil {
				t.Fatal(err)
			}
			if bound := m.window + m.keep + largest; l.kept > bound {
				t.Fatalf("the log holds %d bytes, its bound is %d", l.kept, bound)
			}
			if l.kept != m.costFrom(m.first) {
				t.Fatalf("the log counts %d bytes, it holds %d", l.kept, m.costFrom(m.first))
			}
		}
		if err := m.compare(l, 0, 1<<20); err != nil {
			t.Fatal(err)
		}
	}
}

// appending fills the log until it blocks, and tells how many chunks went in.
func appending(l *Log, size int) (appended func() int, stop func()) {
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for !isClosed(done) {
			l.Append(wire.Stdout, make([]byte, size))
		}
	}()
	return func() int {
			synctest.Wait()
			l.mu.Lock()
			defer l.mu.Unlock()
			return int(l.last)
		}, func() {
			close(done)
			l.Ack(l.last)
			<-ended
		}
}

func TestLogInMemoryBlocksAtTheWindowAndGoesOnWhenAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inMemory(10_000, 1000)
		appended, stop := appending(l, 936) // a thousand with its overhead
		defer stop()
		if n := appended(); n != 10 {
			t.Fatalf("%d chunks of 1000 went into a window of 10000", n)
		}
		l.Ack(4)
		if n := appended(); n != 14 {
			t.Fatalf("after 4 were acknowledged %d chunks are in, want 14", n)
		}
		l.Ack(4)
		l.Ack(2)
		if n := appended(); n != 14 {
			t.Fatalf("an acknowledgement that goes back made room: %d chunks", n)
		}
	})
}

func TestLogInMemoryBoundsTinyChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inMemory(65_000, 1000)
		appended, stop := appending(l, 1)
		defer stop()
		if n := appended(); n != 1000 {
			t.Fatalf("%d chunks of one byte went into a window of 65000, want 1000", n)
		}
	})
}

func TestLogInMemoryThatIsFreeDropsTheOldest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := inMemory(10_000, 1000)
		appended, stop := appending(l, 936)
		blocked := appended()
		stop()
		l.SetFree(true)
		for range 100 {
			l.Append(wire.Stdout, make([]byte, 936)) // blocks for ever if it blocks at all
		}
		r := l.Read(0, 1<<20)
		if r.Gap == nil || r.Gap.From != 1 || r.Gap.Bytes != r.Gap.To*936 || r.Next <= uint64(blocked) {
			t.Fatalf("Read: gap %+v, next %d", r.Gap, r.Next)
		}
		if l.kept > 11_000 {
			t.Fatalf("the log holds %d bytes", l.kept)
		}
	})
}

func TestLogWakesWhoWaitsForWhatComesNext(t *testing.T) {
	l := inMemory(1000, 100)
	wake := l.Wake(0)
	if isClosed(wake) {
		t.Fatal("an empty log woke its reader")
	}
	l.Append(wire.Stdout, []byte("x"))
	if !isClosed(wake) || !isClosed(l.Wake(0)) || isClosed(l.Wake(1)) {
		t.Fatal("a chunk did not wake the right readers")
	}
	next := l.Wake(1)
	l.End(wire.ExitStatus{Cause: wire.CauseExited})
	if !isClosed(next) || !isClosed(l.Wake(99)) {
		t.Fatal("the end did not wake everybody")
	}
}
