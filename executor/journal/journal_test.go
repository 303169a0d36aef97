package journal

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

func open(t testing.TB, dir string) (*Journal, map[Key]*Entry) {
	t.Helper()
	j, entries, cut, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if cut != 0 {
		t.Errorf("%d bytes were cut off", cut)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j, entries
}

func sample(n byte) Start {
	return Start{
		Principal: "ci", ID: wire.ExecID{n}, Hash: bytes.Repeat([]byte{n}, 32), Starter: "client_x", Unix: 1700000000000,
		Sandbox: wire.SandboxReadOnly, Roots: []string{"/w\xff"}, View: wire.ViewMinimal, Limits: wire.Limits{Memory: 1 << 20},
		Grace: time.Minute, TTY: true, Detach: true, OnFull: wire.OnFullBlock,
	}
}

func begin(t testing.TB, j *Journal, s Start) Start {
	t.Helper()
	s, err := j.Begin(s)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s Start) key() Key { return Key{s.Principal, s.ID} }

func TestWhatWasRecordedIsThereAfterReopening(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	want := map[Key]*Entry{}
	for n := range byte(6) {
		s := begin(t, j, sample(n+1))
		want[s.key()] = &Entry{Start: s}
	}
	end := func(n byte, o Outcome) {
		t.Helper()
		k := sample(n).key()
		o, err := j.End(k, o)
		if err != nil {
			t.Fatal(err)
		}
		want[k].Outcome = &o
	}
	end(1, Outcome{Unix: 5, Last: 9, Status: &wire.ExitStatus{Code: 3, Cause: wire.CauseExited}})
	end(2, Outcome{Unix: 6, Code: wire.CodeNotFoundCmd, Text: "no such command"})
	end(3, Outcome{Unix: 7, Status: &wire.ExitStatus{Signal: "KILL", Cause: wire.CauseOOM, Hit: wire.LimitMemory}})
	if err := j.Forget(sample(3).key()); err != nil {
		t.Fatal(err)
	}
	want[sample(3).key()].Forgotten = true
	same := func(what string, j2 *Journal, got map[Key]*Entry) {
		t.Helper()
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", what, d)
		}
		if j2.Epoch() != j.Epoch() || j2.Epoch() == (wire.ID{}) {
			t.Errorf("%s: state epoch %x, want %x", what, j2.Epoch(), j.Epoch())
		}
	}
	j2, got := open(t, dir)
	same("reopened", j2, got)
	delete(want, sample(6).key()) // the table has dropped it
	if err := j2.Compact(func(yield func(Entry) bool) {
		for _, e := range want {
			yield(*e)
		}
	}); err != nil {
		t.Fatal(err)
	}
	late := begin(t, j2, sample(7))
	want[late.key()] = &Entry{Start: late}
	j3, got := open(t, dir)
	same("compacted", j3, got)
}

func TestAnotherFolderHasAnotherEpoch(t *testing.T) {
	a, _ := open(t, t.TempDir())
	b, _ := open(t, t.TempDir())
	if a.Epoch() == b.Epoch() {
		t.Error("two folders share a state epoch")
	}
}

func TestUptimeNeverGoesBack(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	s := begin(t, j, sample(1))
	j.base = time.Hour
	o, err := j.End(s.key(), Outcome{Status: &wire.ExitStatus{Cause: wire.CauseExited}})
	if err != nil {
		t.Fatal(err)
	}
	j2, _ := open(t, dir)
	if up := j2.Uptime(); up < time.Hour || o.Uptime < time.Hour.Milliseconds() {
		t.Errorf("running time %v after one of an hour", up)
	}
	j2.base = 2 * time.Hour
	if err := j2.Close(); err != nil {
		t.Fatal(err)
	}
	if j3, _ := open(t, dir); j3.Uptime() < 2*time.Hour {
		t.Errorf("running time %v after one of two hours that ended in good order", j3.Uptime())
	}
}

func TestTornRecordIsCutOffAndToldOf(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	begin(t, j, sample(1))
	whole := j.file.Size()
	begin(t, j, sample(2))
	path := filepath.Join(dir, "journal")
	if err := os.Truncate(path, j.file.Size()-1); err != nil {
		t.Fatal(err)
	}
	size := j.file.Size() - 1
	j2, entries, cut, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer j2.Close()
	if _, ok := entries[sample(1).key()]; !ok || len(entries) != 1 || cut <= 0 || cut > size-whole {
		t.Errorf("%d entries, %d bytes cut off, want 1 and up to %d", len(entries), cut, size-whole)
	}
}

func TestDamagedJournalIsRefusedWithWhatToDo(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	begin(t, j, sample(1))
	begin(t, j, sample(2))
	path := filepath.Join(dir, "journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[j.file.Size()/2] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, _, err = Open(dir)
	if _, ok := errors.AsType[*recordlog.DamagedError](err); !ok {
		t.Fatalf("damaged journal: %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
		t.Error("the damaged file was touched")
	}
}

func TestCompactionWaitsForRecordingsAndLosesNone(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	var mu sync.Mutex
	known := map[Key]Entry{}
	var group sync.WaitGroup
	for w := range 4 {
		group.Go(func() {
			for n := range 50 {
				s := sample(byte(n + 1))
				s.Principal = fmt.Sprint(w)
				mu.Lock()
				known[s.key()] = Entry{Start: s} // known before it is recorded
				mu.Unlock()
				if _, err := j.Begin(s); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		mu.Lock()
		if err := j.Compact(maps.Values(known)); err != nil {
			t.Error(err)
		}
		mu.Unlock()
	}
	group.Wait()
	_, got := open(t, dir)
	if len(got) != 200 {
		t.Errorf("%d entries, want 200", len(got))
	}
}

func TestCompactionThatCannotMakeItsRenameDurableAcceptsNothingMore(t *testing.T) {
	j, _ := open(t, t.TempDir())
	begin(t, j, sample(1))
	j.file.Fail(errors.New("the folder cannot be synced"))
	if _, err := j.Begin(sample(2)); err == nil {
		t.Error("a start was recorded in a file that may be gone")
	}
}

func FuzzReplayTakesAnyRecord(f *testing.F) {
	e := wire.ID{1}
	for _, v := range []any{
		record{Kind: kindEpoch, Epoch: &e},
		record{Kind: kindStart, Start: sample(1)},
		record{Kind: kindEntry, Start: sample(1), Outcome: &Outcome{Code: wire.CodeInternal}},
		endRecord{kindEnd, "ci", wire.ExecID{1}, Outcome{Status: &wire.ExitStatus{}}},
		endRecord{Kind: kindForget},
	} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(_ *testing.T, payload []byte) {
		j := &Journal{records: 1}
		entries := map[Key]*Entry{sample(1).key(): {Start: sample(1)}}
		if j.replay(entries, payload) == nil && len(slices.Collect(maps.Keys(entries))) > 2 {
			panic("one record made more than one entry")
		}
	})
}

func BenchmarkBegin(b *testing.B) {
	j, _ := open(b, b.TempDir())
	s := sample(1)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := j.Begin(s); err != nil {
				b.Fatal(err)
			}
		}
	})
}
