package accounting

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

// read is every record of a file; each line must be one.
func read(t *testing.T, path string) (records []Record) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var r Record
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("%s: %q: %v", path, lines.Text(), err)
			continue
		}
		records = append(records, r)
	}
	return records
}

func TestRecordsOfManyWritersAreAllThere(t *testing.T) {
	path := filepath.Join(t.TempDir(), "circuits.jsonl")
	var written atomic.Int64
	l, err := Open(path, Options{Written: func(ok bool) {
		if ok {
			written.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Date(2026, 11, 30, 1, 2, 3, 0, time.UTC)
	const writers, each = 8, 100
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				l.Write(Record{Circuit: uint64(w), Seq: uint64(i + 1), Start: start, Tenant: "acme", ToExecutor: 1, ToClient: 2, End: "ok"})
			}
		})
	}
	group.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l.Write(Record{}) // too late, and harmless
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	seen := make(map[[2]uint64]bool)
	for _, r := range read(t, path) {
		if id := [2]uint64{r.Circuit, r.Seq}; seen[id] || r.Lost != 0 || !r.Start.Equal(start) || r.ToClient != 2 {
			t.Errorf("record %+v is there twice, or is not what was written", r)
		} else {
			seen[id] = true
		}
	}
	if len(seen) != writers*each || written.Load() != writers*each {
		t.Errorf("%d records in the file, %d counted, want %d", len(seen), written.Load(), writers*each)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file: %v, %v, want mode 0600", info.Mode(), err)
	}
}

func TestFullFilesAreMovedAsideAndTheOldestGoes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	for n := range 6 { // a restart in between changes nothing
		l, err := Open(path, Options{MaxBytes: 1, Keep: 2}) // one record a file
		if err != nil {
			t.Fatal(err)
		}
		l.Write(Record{Circuit: uint64(n + 1)})
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]uint64{path: 6, path + ".1": 5, path + ".2": 4} {
		if records := read(t, name); len(records) != 1 || records[0].Circuit != want {
			t.Errorf("%s has %+v, want circuit %d", filepath.Base(name), records, want)
		}
	}
	if names, err := filepath.Glob(path + "*"); err != nil || len(names) != 3 {
		t.Errorf("files %q, %v, want 3", names, err)
	}
}

func TestLineThatACrashHasCutSpoilsNoOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(path, []byte(`{"circuit":1}`+"\n"+`{"circ`), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	l.Write(Record{Circuit: 2})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(string(content), "\n"), "\n")
	if len(lines) != 3 || lines[1] != `{"circ` || !strings.Contains(lines[2], `"circuit":2`) {
		t.Errorf("the file has %q", lines)
	}
}

// A disk that takes nothing holds nobody up; what was lost is counted, and the next line says how much.
func TestLossIsCountedAndTold(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	results := make(chan bool, 8)
	l, err := Open(path, Options{MaxBytes: 1, Keep: 1, Written: func(written bool) { results <- written }})
	if err != nil {
		t.Fatal(err)
	}
	// A folder in the place of the file that is to be removed: no rotation can work.
	blocked := path + ".1"
	if err := os.MkdirAll(filepath.Join(blocked, "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	lost := uint64(0)
	write := func(n uint64) {
		l.Write(Record{Circuit: n})
		if !<-results {
			lost++
		}
	}
	write(1)
	write(2)
	write(3)
	if err := os.RemoveAll(blocked); err != nil {
		t.Fatal(err)
	}
	write(4)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var told uint64
	records := append(read(t, path), optional(t, blocked)...)
	for _, r := range records {
		told += r.Lost
	}
	if lost == 0 || told != lost {
		t.Errorf("%d records lost, %d told by the lines %+v", lost, told, records)
	}
}

func optional(t *testing.T, path string) []Record {
	t.Helper()
	if _, err := os.Stat(path); err != nil {
		return nil
	}
	return read(t, path)
}

func TestMoreThanMayWaitIsDroppedWithoutWaiting(t *testing.T) {
	var lost int
	l := &Log{o: Options{Written: func(ok bool) {
		if !ok {
			lost++
		}
	}}, queue: make(chan Record, 2), done: make(chan struct{})} // nobody takes anything
	for range 5 {
		l.Write(Record{})
	}
	if lost != 3 || l.lost != 3 {
		t.Errorf("%d records dropped, %d noted, want 3", lost, l.lost)
	}
}
