package execlog

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// small makes a log of a few chunks that has ended and is settled, and the model of it.
func small(t testing.TB, s *Store, name string, chunks int) *modelLog {
	t.Helper()
	m := newModel(Config{Window: 1 << 20, Keep: 1 << 20, Files: s, Name: name})
	for i := range chunks {
		data := bytes.Repeat([]byte{byte(i)}, i*7)
		m.note(wire.Stdout+wire.OutputStream(i%2), data)
		m.Append(wire.Stdout+wire.OutputStream(i%2), data)
	}
	m.exit = &wire.ExitStatus{Cause: wire.CauseExited, Code: chunks}
	m.End(*m.exit)
	if err := m.Settle(); err != nil {
		t.Fatal(err)
	}
	return m
}

// again is the model with the log that was made of the files.
func (m *modelLog) again(l *Log) *modelLog {
	l.End(*m.exit)
	return &modelLog{Log: l, cfg: m.cfg, all: m.all, before: m.before, exit: m.exit}
}

func filesIn(t testing.TB, dir string) (names []string, bytes int64) {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		info, err := f.Info()
		if err != nil {
			t.Fatal(err)
		}
		names, bytes = append(names, f.Name()), bytes+info.Size()
	}
	return names, bytes
}

func TestSmallEndedLogsShareAFile(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	var logs []*modelLog
	for i := range 50 {
		logs = append(logs, small(t, store, fmt.Sprintf("%x", i), 1+i%9))
	}
	if files, size := filesIn(t, dir); len(files) != 1 || size != store.Used() {
		t.Fatalf("files %v of %d bytes, used %d", files, size, store.Used())
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	restarted := openStore(t, dir, 1<<30)
	if names, err := restarted.Names(); err != nil || len(names) != 50 || restarted.Used() != store.Used() {
		t.Fatalf("%d names, %v, used %d after %d", len(names), err, restarted.Used(), store.Used())
	}
	for _, m := range logs {
		l, repair := recovered(t, restarted, m.cfg.Name)
		if repair != (Repair{}) || l.Epoch() != m.Epoch() {
			t.Fatalf("log %s: %+v, epoch %x after %x", m.cfg.Name, repair, l.Epoch(), m.Epoch())
		}
		for _, m := range []*modelLog{m, m.again(l)} {
			for limit := range 30 {
				if kept, err := m.readAll(Position{}, 1+limit); err != nil || len(kept) != len(m.all) {
					t.Fatalf("log %s: %d of %d chunks, %v", m.cfg.Name, len(kept), len(m.all), err)
				}
			}
			for seq, before := range m.before {
				if p := m.Position(uint64(seq)); p != (Position{uint64(seq), before}) {
					t.Fatalf("log %s: Position(%d) = %+v, want %d bytes", m.cfg.Name, seq, p, before)
				}
			}
		}
	}
}

func TestALogWithoutKeptOutputStillSaysHowFarItWent(t *testing.T) {
	dir := t.TempDir()
	l := New(Config{Window: 1000, Files: openStore(t, dir, 1<<30), Name: "a"})
	for range 3 {
		l.Append(wire.Stdout, make([]byte, 100))
	}
	l.End(wire.ExitStatus{Cause: wire.CauseExited})
	l.Ack(3)
	if err := l.Settle(); err != nil {
		t.Fatal(err)
	}
	again, _ := recovered(t, openStore(t, dir, 1<<30), "a")
	for _, l := range []*Log{l, again} {
		if r := l.Read(0, 100); r.Gap == nil || *r.Gap != (wire.Gap{From: 1, To: 3, Bytes: 300}) || len(r.Chunks) > 0 {
			t.Errorf("read %+v", r)
		}
	}
	if files, _ := filesIn(t, dir); !slices.Equal(files, []string{"pack.000001"}) {
		t.Errorf("files %v", files)
	}
}

func TestAPackGoesWithItsLastLog(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 16*2000)
	var logs []*modelLog
	for i := range 30 {
		logs = append(logs, small(t, store, fmt.Sprintf("%x", i), 6)) // some 200 bytes
	}
	files, size := filesIn(t, dir)
	if len(files) < 3 || len(files) > 5 || size != store.Used() {
		t.Fatalf("files %v of %d bytes, used %d", files, size, store.Used())
	}
	freed := store.wake()
	for i, m := range logs {
		last := i+1 == len(logs) || logs[i+1].segments[0].path != m.segments[0].path
		path := m.segments[0].path
		if m.Discard(); i%2 == 0 {
			m.Discard()
			if err := m.Settle(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := os.Stat(path); (err != nil) != last {
			t.Fatalf("log %d, the last one of its file: %v; after it the file: %v", i, last, err)
		}
		if last && !isClosed(freed) {
			t.Fatal("room was made, and nobody woke")
		}
		if _, size := filesIn(t, dir); size != store.Used() {
			t.Fatalf("the files take %d bytes, used is %d", size, store.Used())
		}
	}
	if store.Used() != 0 {
		t.Fatalf("%d bytes are used of nothing", store.Used())
	}
	small(t, store, "a", 3)
	if err := store.Remove("a"); err != nil || store.Used() != 0 {
		t.Fatalf("Remove: %v, %d bytes used", err, store.Used())
	}
}

func TestWithoutRoomForAPackSettlingDoesWhatItCan(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	m := newModel(Config{Window: 1000, Keep: 1000, Files: store, Name: "a"})
	m.note(wire.Stdout, []byte("x"))
	m.Append(wire.Stdout, []byte("x"))
	m.exit = &wire.ExitStatus{Cause: wire.CauseExited}
	m.End(*m.exit)
	store.max = 60
	if err := m.Settle(); err == nil || store.Used() != 0 {
		t.Fatalf("Settle: %v, %d bytes used", err, store.Used())
	}
	if kept, err := m.readAll(Position{}, 100); err != nil || len(kept) != 1 {
		t.Fatalf("%d chunks, %v", len(kept), err)
	}
	store.max = 1 << 20
	if err := m.Settle(); err != nil || m.segments[0].number != 0 {
		t.Fatalf("Settle: %v", err)
	}
	if files, _ := filesIn(t, dir); !slices.Equal(files, []string{"pack.000001"}) {
		t.Fatalf("files %v", files)
	}
}

func TestAPackTakesWhatFilesOfItsOwnHaveNoRoomFor(t *testing.T) {
	store := openStore(t, t.TempDir(), 1<<20)
	m := newModel(Config{Window: 10_000, Keep: 10_000, Files: store, Name: "a"})
	for range 100 {
		m.note(wire.Stdout, []byte("x"))
		m.Append(wire.Stdout, []byte("x"))
	}
	m.exit = &wire.ExitStatus{Cause: wire.CauseExited}
	m.End(*m.exit)
	store.max = 700
	if err := m.Settle(); err != nil {
		t.Fatal(err)
	}
	if kept, err := m.readAll(Position{}, 100); err != nil || len(kept) != 100 || len(m.entries) > 0 {
		t.Fatalf("%d chunks, %d in memory, %v", len(kept), len(m.entries), err)
	}
}

func TestAPackThatCannotBeWrittenIsLeftForTheNextOne(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	a := small(t, store, "a", 4)
	store.packFile.Close()
	b := small(t, store, "b", 4) // in a file of its own
	c := small(t, store, "c", 4)
	if files, size := filesIn(t, dir); !slices.Equal(files, []string{"b.000001", "pack.000001", "pack.000002"}) || size != store.Used() {
		t.Fatalf("files %v of %d bytes, used %d", files, size, store.Used())
	}
	for _, m := range []*modelLog{a, b, c} {
		if kept, err := m.readAll(Position{}, 100); err != nil || len(kept) != 4 || m.Err() != nil {
			t.Fatalf("%d chunks, %v, Err %v", len(kept), err, m.Err())
		}
		m.Discard()
	}
	if files, _ := filesIn(t, dir); len(files) > 0 || store.Used() != 0 {
		t.Fatalf("files %v, used %d", files, store.Used())
	}
}

func TestARemovedLogIsThereAgainAfterARestartUnlessALaterOneHasItsName(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	small(t, store, "a", 2)
	b := small(t, store, "b", 3)
	if err := store.Remove("a"); err != nil {
		t.Fatal(err)
	}
	if names, _ := store.Names(); !slices.Equal(names, []string{"b"}) {
		t.Fatalf("names %v", names)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	store = openStore(t, dir, 1<<20)
	if names, _ := store.Names(); !slices.Equal(names, []string{"a", "b"}) {
		t.Fatalf("names %v", names)
	}
	if err := store.Remove("a"); err != nil {
		t.Fatal(err)
	}
	small(t, store, "a", 5) // in another pack
	if err := store.Remove("b"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.segments[0].path); err == nil {
		t.Fatal("a pack without logs is there")
	}
	small(t, store, "c", 1)
	if err := store.Remove("a"); err != nil {
		t.Fatal(err)
	}
	a := small(t, store, "a", 6)
	store = openStore(t, dir, 1<<20)
	l, _ := recovered(t, store, "a")
	if l.Epoch() != a.Epoch() || l.LastSeq() != 6 {
		t.Fatalf("epoch %x, last %d; want %x, 6", l.Epoch(), l.LastSeq(), a.Epoch())
	}
	l.Discard()
	if err := store.Remove("c"); err != nil || store.Used() != 0 {
		t.Fatalf("Remove: %v, %d bytes used", err, store.Used())
	}
}

func TestFilesOfALogGoBeforeWhatARemovedOneLeftInAPack(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	old := small(t, store, "a", 5)
	small(t, store, "b", 2)
	old.Discard()
	m := newModel(Config{Files: store, Name: "a", Spill: true})
	m.note(wire.Stdout, []byte("new"))
	m.Append(wire.Stdout, []byte("new"))
	m.closeFile()
	store = openStore(t, dir, 1<<20)
	l, repair := recovered(t, store, "a")
	if repair != (Repair{}) || l.Epoch() != m.Epoch() || l.LastSeq() != 1 {
		t.Fatalf("%+v, epoch %x, last %d; want %x, 1", repair, l.Epoch(), l.LastSeq(), m.Epoch())
	}
	l.Discard()
	if err := store.Remove("b"); err != nil || store.Used() != 0 {
		t.Fatalf("Remove: %v, %d bytes used", err, store.Used())
	}
}

func TestAPackThatChangesUnderALogIsAGapAndAnError(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	m := small(t, store, "a", 5)
	small(t, store, "b", 5)
	f, err := os.OpenFile(m.segments[0].path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte{99}, m.segments[0].marks[0].offset+60); err != nil {
		t.Fatal(err)
	}
	f.Close()
	m.failed = true
	if kept, err := m.readAll(Position{}, 50); err != nil || len(kept) != 0 || m.Err() == nil {
		t.Fatalf("%d chunks, %v, Err %v", len(kept), err, m.Err())
	}
	l, repair := recovered(t, store, "a")
	if repair.Bytes != m.segments[0].size || l.LastSeq() != 0 || l.Epoch() == m.Epoch() {
		t.Fatalf("%+v, last %d", repair, l.LastSeq())
	}
}

func TestALogInAPackCostsLittleMemory(t *testing.T) {
	store := openStore(t, t.TempDir(), 1<<30)
	heap := func() int64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return int64(stats.HeapAlloc)
	}
	const logs = 5000
	before := heap()
	for i := range logs {
		small(t, store, fmt.Sprintf("%032x-%08x", i, i), 2)
	}
	if per := (heap() - before) / logs; per > 200 {
		t.Errorf("an ended log costs %d bytes of memory", per)
	} else {
		t.Logf("%d bytes of memory for each log", per)
	}
	runtime.KeepAlive(store)
}

func TestLogsOfManyMaySettleAndGoAtTheSameTime(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 16*1000)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 60 {
				m := newModel(Config{Window: 1 << 20, Keep: 1 << 20, Files: store, Name: fmt.Sprintf("%x-%x", i, j)})
				m.note(wire.Stdout, []byte("some output"))
				m.Append(wire.Stdout, []byte("some output"))
				m.exit = &wire.ExitStatus{Cause: wire.CauseExited}
				m.End(*m.exit)
				var end sync.WaitGroup
				end.Go(func() {
					if err := m.Settle(); err != nil {
						t.Error(err)
					}
				})
				if j%3 == 0 {
					end.Go(m.Discard)
					end.Go(func() { m.Read(0, 100) })
				} else if kept, err := m.readAll(Position{}, 100); err != nil || len(kept) != 1 {
					t.Errorf("%d chunks, %v", len(kept), err)
				}
				end.Wait()
				if err := store.Remove(m.cfg.Name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if files, _ := filesIn(t, dir); len(files) > 0 || store.Used() != 0 {
		t.Fatalf("files %v, used %d", files, store.Used())
	}
}

// BenchmarkSettle is a log of one line from its beginning to its removal.
func BenchmarkSettle(b *testing.B) {
	store := openStore(b, b.TempDir(), 1<<40)
	names := make([]string, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		name := fmt.Sprintf("%x", i)
		l := New(Config{Window: 1000, Keep: 1000, Files: store, Name: name})
		l.Append(wire.Stdout, []byte("x\n"))
		l.End(wire.ExitStatus{Cause: wire.CauseExited})
		if err := l.Settle(); err != nil {
			b.Fatal(err)
		}
		names = append(names, name)
	}
	settled := b.Elapsed()
	for _, name := range names {
		if err := store.Remove(name); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(settled.Nanoseconds())/float64(b.N), "ns/settle")
	b.ReportMetric(float64((b.Elapsed()-settled).Nanoseconds())/float64(b.N), "ns/remove")
}
