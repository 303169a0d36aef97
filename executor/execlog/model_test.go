package execlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

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
			if m.exit == nil || *r.Exit != *m.exit || at != uint64(len(m.all)) && at != m.numbers() {
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

// world is a few logs of one store, to which things happen.
type world struct {
	t     *testing.T
	r     *rand.Rand
	dir   string
	quota int64
	store *Store
	logs  []*modelLog
	names int
}

func (w *world) config() Config {
	w.names++
	cfg := Config{
		Window: 500 + w.r.IntN(4000), Keep: w.r.IntN(2000), Files: w.store, Name: fmt.Sprintf("%x-%x", w.names, w.r.Uint32()),
		Spill: w.r.IntN(4) > 0, OnFull: wire.OnFullBlock + wire.OnFull(w.r.IntN(2)), MaxBytes: 3000 + w.r.Int64N(9000),
	}
	return cfg
}

// append appends a chunk; when it waits it must be allowed to, and must go on when it gets what it waits for.
func (w *world) append(m *modelLog) {
	data := make([]byte, 1+w.r.IntN(400))
	if w.r.IntN(3) > 0 {
		data = data[:min(len(data), 1+w.r.IntN(3))]
	}
	for i := range data {
		data[i] = byte(w.r.Uint32())
	}
	stream := wire.Stdout + wire.OutputStream(w.r.IntN(3))
	unread := m.AckedSeq() < uint64(len(m.all))
	last := m.LastSeq()
	done := make(chan struct{})
	sent := bytes.Clone(data)
	go func() {
		defer close(done)
		m.Append(stream, sent)
	}()
	synctest.Wait()
	if !isClosed(done) {
		if m.cfg.Spill && m.cfg.OnFull != wire.OnFullBlock || m.free || !unread || m.LastSeq() != last {
			w.t.Fatalf("log %+v waits", m.cfg)
		}
		switch w.r.IntN(3) {
		case 0:
			m.freed = true
			m.SetFree(true)
		default:
			m.Ack(last)
		}
		synctest.Wait()
		if !isClosed(done) {
			w.t.Fatalf("log %+v still waits", m.cfg)
		}
	}
	m.note(stream, data)
}

// crash takes the log as its files have it, into a store that is opened anew.
func (w *world) crash() {
	dir := w.dir
	store, err := OpenStore(dir, w.quota)
	if err != nil {
		w.t.Fatal(err)
	}
	w.store = store
	for i, m := range w.logs {
		m.closeFile()
		m.cfg.Files = store
		l, repair, err := store.Recover(m.cfg)
		if err != nil || repair != (Repair{}) {
			w.t.Fatalf("Recover: %+v, %v", repair, err)
		}
		settled := m.exit != nil && len(m.entries) == 0 && len(m.segments) > 0
		if settled {
			l.End(*m.exit)
		} else {
			m.forget(min(uint64(len(m.all)), m.savedSeq()))
		}
		if len(m.segments) == 0 {
			if l.Epoch() == m.Epoch() {
				w.t.Fatal("a log without files has an old epoch")
			}
		} else if l.Epoch() != m.Epoch() || m.savedSeq() != uint64(len(m.all)) {
			w.t.Fatalf("recovered to %d of %d, epoch %x after %x", m.savedSeq(), len(m.all), l.Epoch(), m.Epoch())
		}
		w.logs[i] = &modelLog{Log: l, cfg: m.cfg, all: m.all, before: m.before, exit: m.exit, freed: true, failed: m.failed}
	}
}

// settle ends and settles a log: reads are the same before and after.
func (w *world) settle(m *modelLog) {
	if m.exit == nil {
		m.exit = &wire.ExitStatus{Cause: wire.CauseExited, Code: w.r.IntN(100)}
		m.End(*m.exit)
	}
	before, err := m.readAll(Position{}, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	inFiles := m.spills && (len(m.entries) == 0 || len(m.segments) > 0 && m.segments[0].first <= m.first)
	room := m.unsaved == 0 && (inFiles || !m.spills && w.store.left() >= beginSize+int64(m.kept) && m.cfg.MaxBytes >= beginSize+int64(m.kept))
	if err := m.Settle(); err != nil && room && !m.failed && w.store.left() > beginSize {
		w.t.Fatalf("Settle: %v", err)
	} else if err == nil && (len(m.entries) > 0 || m.file != nil) {
		w.t.Fatal("a settled log holds memory or a file")
	}
	after, err := m.readAll(Position{}, 1<<20)
	if err != nil {
		w.t.Fatal(err)
	}
	if room && !m.failed && len(after) != len(before) {
		w.t.Fatalf("%d chunks before settling, %d after", len(before), len(after))
	}
}

func (w *world) step() {
	i := w.r.IntN(len(w.logs))
	m := w.logs[i]
	switch op := w.r.IntN(100); {
	case op < 60 && m.exit == nil:
		w.append(m)
	case op < 80:
		m.Ack(w.r.Uint64N(m.numbers() + 5))
	case op < 83:
		free := w.r.IntN(2) == 0
		m.freed = m.freed || free
		m.SetFree(free)
	case op < 85:
		w.settle(m)
	case op < 86:
		w.crash()
	case op < 88 && m.file != nil:
		m.file.Close() // a file that is broken: the next write fails
	case op < 90:
		w.failing(m)
	case op < 93 && (m.exit != nil || w.r.IntN(4) == 0):
		m.Discard()
		m.Discard()
		m.freed = true
		if kept, err := m.readAll(Position{}, 1<<20); err != nil || len(kept) > 0 {
			w.t.Fatalf("after Discard: %d chunks, %v", len(kept), err)
		}
		if n := onDisk(w.t, w.dir, m.cfg.Name); n != 0 {
			w.t.Fatalf("%d bytes are left of a log that was discarded", n)
		}
		w.logs[i] = newModel(w.config())
	}
}

// failing appends while no file can be made and none be written.
func (w *world) failing(m *modelLog) {
	if m.exit != nil {
		return
	}
	if m.file != nil {
		m.file.Close()
	}
	dir := w.store.dir
	w.store.dir = filepath.Join(dir, "missing")
	m.failed = m.failed || m.cfg.OnFull != wire.OnFullBlock // one that blocks loses nothing even so
	w.append(m)
	w.store.dir = dir
}

func (w *world) check() {
	var sum int64
	for _, m := range w.logs {
		if err := m.check(w.r); err != nil {
			w.t.Fatalf("log %+v: %v", m.cfg, err)
		}
		n := onDisk(w.t, w.dir, m.cfg.Name)
		if sum += n; n > m.cfg.MaxBytes {
			w.t.Fatalf("a log of at most %d bytes takes %d", m.cfg.MaxBytes, n)
		}
		if m.spills && m.kept > maxTail {
			w.t.Fatalf("a log in files holds %d bytes of memory", m.kept)
		}
	}
	if used := w.store.Used(); used != sum || used > w.quota {
		w.t.Fatalf("used is %d of %d, the files take %d", used, w.quota, sum)
	}
}

func TestLogGivesBackWhatWentInOrAnExactGap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, r: r, dir: t.TempDir(), quota: 8000 + r.Int64N(40_000)}
			var err error
			if w.store, err = OpenStore(w.dir, w.quota); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				w.logs = append(w.logs, newModel(w.config()))
			}
			for range 250 {
				w.step()
				w.check()
			}
			for _, m := range w.logs {
				m.Discard()
			}
			if used := w.store.Used(); used != 0 {
				t.Fatalf("everything is discarded, and %d bytes are used", used)
			}
			if files, err := os.ReadDir(w.dir); err != nil || len(files) > 0 {
				t.Fatalf("everything is discarded, and there are %d files (%v)", len(files), err)
			}
		})
	}
}
