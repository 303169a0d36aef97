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

// world is a few logs of one store, to which things happen.
type world struct {
	t     *testing.T
	r     *rand.Rand
	dir   string
	quota int64
	store *Store
	logs  []*modelLog
	names int
	packs int // logs that were settled in a pack
}

func (w *world) config() Config {
	w.names++
	cfg := Config{
		Window: 500 + w.r.IntN(4000), Keep: w.r.IntN(2000), Files: w.store, Name: fmt.Sprintf("%x-%x", w.names, w.r.Uint32()),
		Spill: w.r.IntN(2) > 0, OnFull: wire.OnFullBlock + wire.OnFull(w.r.IntN(2)), MaxBytes: 3000 + w.r.Int64N(9000),
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

func (w *world) open() {
	if w.store != nil {
		w.store.Close()
	}
	var err error
	if w.store, err = OpenStore(w.dir, w.quota); err != nil {
		w.t.Fatal(err)
	}
	w.store.packSize = 200 + w.r.Int64N(5000)
}

// tear cuts the newest pack somewhere.
func (w *world) tear() bool {
	files, err := filepath.Glob(filepath.Join(w.dir, "pack.*"))
	if err != nil {
		w.t.Fatal(err)
	}
	if len(files) == 0 {
		return false
	}
	newest := files[len(files)-1]
	info, err := os.Stat(newest)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := os.Truncate(newest, w.r.Int64N(info.Size())); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// crash takes the logs as the files have them, into a store that is opened anew, which removes
// what nobody knows. Of some it is not known any more that they have ended.
func (w *world) crash() {
	torn := w.r.IntN(3) == 0 && w.tear()
	w.open()
	store := w.store
	w.removeStrangers()
	for i, m := range w.logs {
		m.closeFile()
		m.cfg.Files = store
		l, repair, err := store.Recover(m.cfg)
		if err != nil || repair != (Repair{}) {
			w.t.Fatalf("Recover: %+v, %v", repair, err)
		}
		if l.savedSeq() != m.savedSeq() && !torn && len(m.segments) > 0 {
			w.t.Fatalf("recovered to %d of %d", l.savedSeq(), m.savedSeq())
		}
		if (l.Epoch() == m.Epoch()) != (len(l.segments) > 0) {
			w.t.Fatalf("%d segments, epoch %x after %x", len(l.segments), l.Epoch(), m.Epoch())
		}
		settled := m.exit != nil && len(m.entries) == 0 && len(l.segments) > 0 && l.savedSeq() == uint64(len(m.all))
		if settled && w.r.IntN(3) > 0 {
			l.End(*m.exit)
		} else {
			m.forget(min(uint64(len(m.all)), l.savedSeq()))
		}
		w.logs[i] = &modelLog{Log: l, cfg: m.cfg, all: m.all, before: m.before, exit: m.exit, freed: true, failed: m.failed}
	}
}

func (w *world) removeStrangers() {
	names, err := w.store.Names()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, name := range names {
		if !slices.ContainsFunc(w.logs, func(m *modelLog) bool { return m.cfg.Name == name }) {
			if err := w.store.Remove(name); err != nil {
				w.t.Fatal(err)
			}
		}
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
	if len(m.segments) > 0 && m.segments[0].number == 0 {
		w.packs++
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
	case op < 86 && m.exit == nil: // the quota is used up meanwhile
		w.store.max = w.store.Used() + w.r.Int64N(100)
		w.settle(m)
		w.store.max = w.quota
	case op < 87:
		w.crash()
	case op < 89 && m.file != nil:
		m.file.Close() // a file that is broken: the next write fails
	case op < 91:
		w.failing(m)
	case op < 94 && (m.exit != nil || w.r.IntN(4) == 0):
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
	sum += onDisk(w.t, w.dir, "pack")
	if used := w.store.Used(); used != sum || used > w.quota {
		w.t.Fatalf("used is %d of %d, the files take %d", used, w.quota, sum)
	}
}

func TestLogGivesBackWhatWentInOrAnExactGap(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	packs := 0
	for range 8 {
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, r: r, dir: t.TempDir(), quota: 8000 + r.Int64N(40_000)}
			w.open()
			defer func() { w.store.Close() }()
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
			packs += w.packs
		})
	}
	t.Logf("%d logs were settled in packs", packs)
}
