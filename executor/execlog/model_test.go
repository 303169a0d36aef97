package execlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// modelLog remembers everything that ever went into a log.
type modelLog struct {
	*Log
	cfg    Config
	all    []wire.Chunk // number n is all[n-1]
	before []uint64     // bytes before all[n]; one more than all
	exit   *wire.ExitStatus
	freed  bool // was free at some time, so that unacknowledged output may be gone
	failed bool // the disk failed at some time
}

func newModel(cfg Config) *modelLog {
	return &modelLog{Log: New(cfg), cfg: cfg, before: []uint64{0}}
}

func (m *modelLog) note(stream wire.OutputStream, data []byte) {
	m.all = append(m.all, wire.Chunk{Seq: uint64(len(m.all) + 1), Stream: stream, Data: bytes.Clone(data)})
	m.before = append(m.before, m.before[len(m.all)-1]+uint64(len(data)))
}

// forget makes the model end after a number.
func (m *modelLog) forget(after uint64) {
	m.all, m.before, m.exit = m.all[:after], m.before[:after+1], nil
}

func (m *modelLog) numbers() uint64 {
	if m.exit != nil {
		return uint64(len(m.all) + 1)
	}
	return uint64(len(m.all))
}

// readAll reads from a place to the end, and says what is wrong with the answers. kept are the numbers
// that came.
func (m *modelLog) readAll(from Position, limit int) (kept []uint64, err error) {
	for p := from; ; {
		r, next := m.ReadFrom(p, limit)
		at := p.Seq
		if r.Gap != nil {
			if r.Gap.From != at+1 || r.Gap.To < r.Gap.From || r.Gap.To > uint64(len(m.all)) {
				return nil, fmt.Errorf("after %d of %d: gap %+v", at, len(m.all), *r.Gap)
			}
			if want := m.before[r.Gap.To] - m.before[at]; r.Gap.Bytes != want {
				return nil, fmt.Errorf("after %d: gap %+v, want %d bytes", at, *r.Gap, want)
			}
			if m.mayNotLose() && r.Gap.To > m.AckedSeq() {
				return nil, fmt.Errorf("after %d: gap %+v, acknowledged is %d", at, *r.Gap, m.AckedSeq())
			}
			at = r.Gap.To
		}
		size := 0
		for _, c := range r.Chunks {
			if size += len(c.Data); at >= uint64(len(m.all)) || c.Seq != at+1 {
				return nil, fmt.Errorf("number %d after %d of %d", c.Seq, at, len(m.all))
			}
			if w := m.all[at]; c.Stream != w.Stream || !bytes.Equal(c.Data, w.Data) {
				return nil, fmt.Errorf("chunk %d differs from the one that was appended", c.Seq)
			}
			at = c.Seq
			kept = append(kept, at)
		}
		if len(r.Chunks) > 1 && size > limit {
			return nil, fmt.Errorf("%d bytes in %d chunks, limit %d", size, len(r.Chunks), limit)
		}
		if r.Exit != nil {
			if m.exit == nil || !r.Exit.Equal(*m.exit) || at != uint64(len(m.all)) && at != m.numbers() {
				return nil, fmt.Errorf("exit %+v after %d of %d", r.Exit, at, len(m.all))
			}
			at = m.numbers()
		}
		if r.Next != at || next.Seq != at || next.Bytes != m.before[min(at, uint64(len(m.all)))] {
			return nil, fmt.Errorf("after %d the next is %d and %+v, want %d and %d bytes", p.Seq, r.Next, next, at, m.before[min(at, uint64(len(m.all)))])
		}
		if at == p.Seq || r.Exit != nil {
			if at != m.numbers() || (r.Exit != nil) != (m.exit != nil) {
				return nil, fmt.Errorf("ends at %d of %d, exit %v", at, m.numbers(), r.Exit)
			}
			return kept, nil
		}
		p = next
	}
}

func (m *modelLog) mayNotLose() bool {
	return !m.freed && !m.failed && (m.cfg.OnFull == wire.OnFullBlock || !m.cfg.Spill)
}

func (m *modelLog) check(r *rand.Rand) error {
	kept, err := m.readAll(Position{}, 1+r.IntN(3000))
	if err != nil {
		return fmt.Errorf("from the beginning: %w", err)
	}
	seq := r.Uint64N(uint64(len(m.all)) + 1)
	p, exact := m.Position(seq), m.before[seq]
	if isKept := seq == 0 || slices.Contains(kept, seq); p.Seq != seq || p.Bytes > exact || isKept && p.Bytes != exact {
		return fmt.Errorf("Position(%d) = %+v, want %d bytes", seq, p, exact)
	}
	_, err = m.readAll(Position{seq, exact}, 1+r.IntN(3000))
	return err
}

// onDisk is what the files of a name take.
func onDisk(t *testing.T, dir, name string) (sum int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, name+".*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := os.Stat(f)
		if err != nil {
			t.Fatal(err)
		}
		sum += info.Size()
	}
	return sum
}
