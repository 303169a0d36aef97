package execlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

func openStore(t testing.TB, dir string, quota int64) *Store {
	t.Helper()
	s, err := OpenStore(dir, quota)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func recovered(t testing.TB, s *Store, name string) (*Log, Repair) {
	t.Helper()
	l, repair, err := s.Recover(Config{Name: name, Spill: true})
	if err != nil {
		t.Fatal(err)
	}
	return l, repair
}

// spilled makes the files of a log in several segments, and returns the model of it.
func spilled(t testing.TB, dir, name string, chunks int) *modelLog {
	t.Helper()
	m := newModel(Config{Files: openStore(t, dir, 1<<20), Name: name, Spill: true, MaxBytes: 16 * 300})
	for i := range chunks {
		data := bytes.Repeat([]byte{byte(i)}, 1+i*5)
		m.note(wire.Stdout, data)
		m.Append(wire.Stdout, data)
	}
	m.closeFile()
	return m
}

func TestACutAtAnyByteLeavesTheWholeChunksBeforeIt(t *testing.T) {
	dir := t.TempDir()
	m := spilled(t, dir, "a", 16)
	if len(m.segments) < 3 {
		t.Fatalf("%d segments", len(m.segments))
	}
	last := m.segments[len(m.segments)-1]
	content, err := os.ReadFile(last.path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range content {
		for _, tail := range [][]byte{nil, make([]byte, 50)} {
			if err := os.WriteFile(last.path, append(content[:size:size], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			whole, end := last.first-1, int64(0)
			if int64(size) >= beginSize {
				end = beginSize
			}
			for n := last.first; n <= last.last; n++ {
				if next := end + chunkSize(m.all[n-1].Data); end > 0 && next <= int64(size) {
					whole, end = n, next
				}
			}
			store := openStore(t, dir, 1<<20)
			l, repair := recovered(t, store, "a")
			if l.LastSeq() != whole || repair.Bytes != int64(size+len(tail))-end {
				t.Fatalf("cut at %d: ends at %d, want %d; %+v, want %d bytes", size, l.LastSeq(), whole, repair, int64(size+len(tail))-end)
			}
			if store.Used() != onDisk(t, dir, "a") {
				t.Fatalf("cut at %d: used is %d, the files take %d", size, store.Used(), onDisk(t, dir, "a"))
			}
			got := &modelLog{Log: l, all: m.all[:whole], before: m.before[:whole+1], failed: true}
			if kept, err := got.readAll(Position{}, 1000); err != nil || len(kept) != int(whole) {
				t.Fatalf("cut at %d: %d chunks, %v", size, len(kept), err)
			}
			if again, repair := recovered(t, store, "a"); repair != (Repair{}) || again.Epoch() != l.Epoch() || again.LastSeq() != whole {
				t.Fatalf("cut at %d: second recovery %+v", size, repair)
			}
		}
	}
}

func TestDamageInTheMiddleIsAGapOfItsExactBytes(t *testing.T) {
	dir := t.TempDir()
	m := spilled(t, dir, "a", 16)
	s := m.segments[1]
	if err := os.Truncate(s.path, s.size-1); err != nil {
		t.Fatal(err)
	}
	l, repair := recovered(t, openStore(t, dir, 1<<20), "a")
	if want := chunkSize(m.all[s.last-1].Data) - 1; repair != (Repair{Bytes: want}) {
		t.Fatalf("repair %+v, want %d bytes", repair, want)
	}
	got := &modelLog{Log: l, all: m.all, before: m.before, failed: true}
	if kept, err := got.readAll(Position{}, 1000); err != nil || len(kept) != 15 {
		t.Fatalf("%d chunks, %v", len(kept), err)
	}
	if r := l.Read(s.last-1, 1000); r.Gap == nil || *r.Gap != (wire.Gap{From: s.last, To: s.last, Bytes: uint64(len(m.all[s.last-1].Data))}) {
		t.Fatalf("gap %+v", r.Gap)
	}
}

func TestAFileThatChangesUnderALogIsAGapAndAnError(t *testing.T) {
	m := spilled(t, t.TempDir(), "a", 16)
	m.End(wire.ExitStatus{Cause: wire.CauseExited})
	if err := m.Settle(); err != nil {
		t.Fatal(err)
	}
	s := m.segments[1]
	if err := os.Truncate(s.path, s.size-1); err != nil {
		t.Fatal(err)
	}
	m.exit, m.failed = m.ExitStatus(), true
	if kept, err := m.readAll(Position{}, 50); err != nil || len(kept) != 15 || m.Err() == nil {
		t.Fatalf("%d chunks, %v, Err %v", len(kept), err, m.Err())
	}
}

func TestSegmentsOfAnotherLogAreRemoved(t *testing.T) {
	dir := t.TempDir()
	a, b := spilled(t, dir, "a", 16), spilled(t, dir, "b", 16)
	if err := os.Rename(b.segments[2].path, a.segments[2].path); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.000099"), []byte("no segment at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	store := openStore(t, dir, 1<<20)
	l, repair := recovered(t, store, "a")
	if repair.Segments != 2 || l.LastSeq() != 16 || l.Epoch() != a.Epoch() {
		t.Fatalf("%+v, last %d", repair, l.LastSeq())
	}
	l.Append(wire.Stdout, []byte("more"))
	if r := l.Read(16, 100); len(r.Chunks) != 1 || r.Next != 17 {
		t.Fatalf("after recovery: %+v", r)
	}
	l.Discard()
	if err := store.Remove("b"); err != nil || store.Used() != 0 {
		t.Fatalf("Remove: %v, %d bytes used", err, store.Used())
	}
}

func TestOutputThatLooksLikeRecordsConfusesNobody(t *testing.T) {
	dir := t.TempDir()
	inner := filepath.Join(dir, "inner")
	f, err := recordlog.Create(inner)
	if err != nil {
		t.Fatal(err)
	}
	for _, record := range [][]byte{encodeBegin(wire.ID{1}, 5, 5), append(chunkHead(wire.Stdout, 5), "forged"...)} {
		if _, err := f.Append(record); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	forged, err := os.ReadFile(inner)
	if err != nil {
		t.Fatal(err)
	}
	logs := filepath.Join(dir, "logs")
	l := New(Config{Files: openStore(t, logs, 1<<20), Name: "a", Spill: true})
	l.Append(wire.Stdout, []byte("first"))
	l.Append(wire.Stdout, forged)
	l.closeFile()
	path := l.segments[0].path
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := 1; cut < len(forged); cut++ { // the forged chunk is torn, records in it are whole
		if err := os.WriteFile(path, content[:len(content)-cut], 0o600); err != nil {
			t.Fatal(err)
		}
		got, _ := recovered(t, openStore(t, logs, 1<<20), "a")
		if r := got.Read(0, 1000); len(r.Chunks) != 1 || r.Next != 1 || string(r.Chunks[0].Data) != "first" || got.Epoch() != l.Epoch() {
			t.Fatalf("cut by %d: %+v", cut, r)
		}
	}
}

func TestNamesThatAreNoneAreRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	s := openStore(t, dir, 1<<20)
	for _, name := range []string{"", "..", "a/b", "A", "x", "a.b", strings.Repeat("a", 201)} {
		if _, _, err := s.Recover(Config{Name: name}); err == nil {
			t.Errorf("Recover(%q) succeeded", name)
		}
		if err := s.Remove(name); err == nil {
			t.Errorf("Remove(%q) succeeded", name)
		}
		l := New(Config{Files: s, Name: name, Spill: true})
		l.Append(wire.Stdout, []byte("x"))
		if l.Err() == nil || s.Used() != 0 {
			t.Errorf("a log %q has files: %v", name, l.Err())
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	if _, err := OpenStore(dir, 0); err == nil {
		t.Error("a quota of nothing was taken")
	}
}

func TestAChunkThatCannotBeWrittenLeavesNoFile(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	l := New(Config{Files: store, Name: "a", Spill: true})
	l.Append(wire.Stdout, make([]byte, recordlog.MaxRecord))
	files, _ := filesIn(t, dir)
	if names, err := store.Names(); err != nil || len(names) > 0 || len(files) > 0 || l.Err() == nil || store.Used() != 0 {
		t.Fatalf("names %v, %v, files %v, Err %v, %d bytes used", names, err, files, l.Err(), store.Used())
	}
}

func FuzzRecoverReadsAnySegments(f *testing.F) {
	m := spilled(f, f.TempDir(), "a", 12)
	var seed [2][]byte
	for i := range seed {
		content, err := os.ReadFile(m.segments[i].path)
		if err != nil {
			f.Fatal(err)
		}
		seed[i] = content
	}
	f.Add(seed[0], seed[1])
	f.Add(seed[1], seed[0])
	f.Add(seed[0][:len(seed[0])-3], seed[1])
	f.Add(seed[0], []byte{})
	f.Fuzz(func(t *testing.T, first, second []byte) {
		dir := t.TempDir()
		for i, content := range [][]byte{first, second} {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("a.%06d", i+1)), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		store := openStore(t, dir, 1<<20)
		l, _ := recovered(t, store, "a")
		l.Append(wire.Stderr, []byte("after"))
		l.End(wire.ExitStatus{Cause: wire.CauseExited})
		var bytes uint64
		for p := (Position{}); ; {
			r, next := l.ReadFrom(p, 100)
			if r.Gap != nil {
				bytes += r.Gap.Bytes
			}
			for _, c := range r.Chunks {
				bytes += uint64(len(c.Data))
			}
			if r.Exit != nil {
				if r.Next != l.LastSeq() || bytes != next.Bytes {
					t.Fatalf("exit at %d of %d, %d bytes came of %d", r.Next, l.LastSeq(), bytes, next.Bytes)
				}
				break
			}
			if next.Seq <= p.Seq {
				t.Fatalf("stands at %+v of %d", p, l.LastSeq())
			}
			p = next
		}
		if err := l.Settle(); err != nil {
			t.Fatal(err)
		}
		if again, repair := recovered(t, store, "a"); repair != (Repair{}) || again.Epoch() != l.Epoch() || again.LastSeq() != l.LastSeq()-1 {
			t.Fatalf("second recovery: %+v, last %d of %d", repair, again.LastSeq(), l.LastSeq())
		}
		if used := onDisk(t, dir, "a"); store.Used() != used {
			t.Fatalf("used is %d, the files take %d", store.Used(), used)
		}
		if err := store.Remove("a"); err != nil || store.Used() != 0 {
			t.Fatalf("Remove: %v, %d bytes used", err, store.Used())
		}
	})
}
