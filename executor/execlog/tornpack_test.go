package execlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

func TestAPackCutAtAnyByteKeepsTheWholeLogsBeforeIt(t *testing.T) {
	dir := t.TempDir()
	store := openStore(t, dir, 1<<20)
	var logs []*modelLog
	var ends []int64
	for i := range 5 {
		logs = append(logs, small(t, store, fmt.Sprintf("%x", i), 2+i))
		ends = append(ends, store.Used())
	}
	path := logs[0].segments[0].path
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for size := range content {
		for _, tail := range [][]byte{nil, make([]byte, 50), content[:60]} {
			if err := os.WriteFile(path, append(content[:size:size], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			whole := 0
			for whole < len(ends) && ends[whole] <= int64(size) {
				whole++
			}
			store := openStore(t, dir, 1<<20)
			names, err := store.Names()
			if err != nil || len(names) != whole {
				t.Fatalf("cut at %d: names %v, %v, want %d", size, names, err, whole)
			}
			var end int64
			if whole > 0 {
				end = ends[whole-1]
			}
			if _, size := filesIn(t, dir); size != end || store.Used() != end {
				t.Fatalf("cut at %d: the file has %d bytes, used is %d, want %d", size, size, store.Used(), end)
			}
			for i, m := range logs {
				l, repair := recovered(t, store, m.cfg.Name)
				if repair != (Repair{}) || i < whole != (l.Epoch() == m.Epoch()) {
					t.Fatalf("cut at %d: log %d: %+v, epoch %x after %x", size, i, repair, l.Epoch(), m.Epoch())
				}
				if i >= whole {
					continue
				}
				if kept, err := m.again(l).readAll(Position{}, 20); err != nil || len(kept) != len(m.all) {
					t.Fatalf("cut at %d: log %d: %d chunks, %v", size, i, len(kept), err)
				}
			}
		}
	}
}

func FuzzDecodePacked(f *testing.F) {
	f.Add(encodePacked("a-1", wire.ID{1}, Position{3, 50}, []entry{{stream: wire.Stdout, data: []byte("x")}, {stream: wire.Stderr}}))
	f.Add(encodePacked("b", wire.ID{}, Position{7, 7}, nil))
	f.Add(bytes.Repeat([]byte{255}, 400)) // the longest name
	wrong := encodePacked("c", wire.ID{}, Position{7, 7}, nil)
	wrong[len(wrong)-1]++ // it says that there is a chunk
	f.Add(wrong)
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := decodePacked(b)
		if !ok {
			return
		}
		var entries []entry
		p.each(func(c wire.Chunk) bool {
			entries = append(entries, entry{stream: c.Stream, data: c.Data})
			return true
		})
		if got := encodePacked(p.name, p.epoch, p.after, entries); !bytes.Equal(got, b) || packedSize(p.name, entries) != frame+int64(len(b)) {
			t.Fatalf("%x is not what was read: %x", got, b)
		}
	})
}

func FuzzOpenStoreReadsAnyPack(f *testing.F) {
	dir := f.TempDir()
	store := openStore(f, dir, 1<<20)
	small(f, store, "a", 3)
	small(f, store, "b", 0)
	small(f, store, "c", 9)
	content, err := os.ReadFile(filepath.Join(dir, "pack.000001"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(content, []byte{})
	f.Add(content[:len(content)-5], []byte("\x01a"))
	f.Add([]byte("pst"), encodePacked("a", wire.ID{1}, Position{3, 50}, []entry{{stream: wire.Stdout, data: []byte("x")}}))
	f.Fuzz(func(t *testing.T, content, record []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pack.000001"), content, 0o600); err != nil {
			t.Fatal(err)
		}
		if file, err := recordlog.Create(filepath.Join(dir, "pack.000002")); err != nil {
			t.Fatal(err)
		} else if _, err := file.Append(record); err == nil {
			file.Close()
		}
		store := openStore(t, dir, 1<<20)
		names, err := store.Names()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			l, repair := recovered(t, store, name)
			if repair != (Repair{}) {
				t.Fatalf("log %q: %+v", name, repair)
			}
			l.End(wire.ExitStatus{Cause: wire.CauseExited})
			for p := (Position{}); ; {
				r, next := l.ReadFrom(p, 100)
				if r.Exit != nil {
					break
				}
				if next.Seq <= p.Seq {
					t.Fatalf("stands at %+v of %d", p, l.LastSeq())
				}
				p = next
			}
			if l.Err() != nil {
				t.Fatal(l.Err())
			}
		}
		if _, size := filesIn(t, dir); size != store.Used() {
			t.Fatalf("the files take %d bytes, used is %d", size, store.Used())
		}
		for _, name := range names {
			if err := store.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
		if files, _ := filesIn(t, dir); len(files) > 0 || store.Used() != 0 {
			t.Fatalf("files %v, used %d", files, store.Used())
		}
	})
}
