package recordlog

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// read opens a file and returns what is in it.
func read(t testing.TB, path string) (records [][]byte, cut int64, err error) {
	t.Helper()
	f, cut, err := Open(path, func(_ int64, p []byte) error {
		records = append(records, bytes.Clone(p))
		return nil
	})
	if err == nil {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return records, cut, err
}

// write makes a file of n records of growing size and returns its bytes and where each ends.
func write(t testing.TB, path string, n int) (content []byte, ends []int) {
	t.Helper()
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := range n {
		if _, err := f.Append(fmt.Appendf(nil, "record %d ", i), bytes.Repeat([]byte{byte(i)}, i*7)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(f.Size()))
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	content, err = os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content, ends
}

func TestEveryCutLeavesWholeRecordsOnly(t *testing.T) {
	dir := t.TempDir()
	content, ends := write(t, filepath.Join(dir, "whole"), 12)
	for size := range len(content) + 1 {
		path := filepath.Join(dir, "cut")
		for _, tail := range [][]byte{nil, make([]byte, 40)} { // zeros are what a file system may leave
			if err := os.WriteFile(path, append(content[:size:size], tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			records, cut, err := read(t, path)
			if err != nil {
				t.Fatalf("cut at %d: %v", size, err)
			}
			want, end := 0, int(Begin)
			for _, e := range ends {
				if e <= size {
					want, end = want+1, e
				}
			}
			if size < int(Begin) && len(tail) > 0 { // the magic itself is not whole
				continue
			}
			if len(records) != want {
				t.Fatalf("cut at %d: %d records, want %d", size, len(records), want)
			}
			torn := len(bytes.TrimRight(content[end:max(end, size)], "\x00")) // zeros are room, not a record
			if size >= int(Begin) && int(cut) != torn {
				t.Fatalf("cut at %d: says %d bytes were torn, want %d", size, cut, torn)
			}
			f, cut, err := Open(path, func(int64, []byte) error { return nil })
			if err != nil || cut != 0 {
				t.Fatalf("second opening: cut %d, %v", cut, err)
			}
			if _, err := f.Append([]byte("next")); err != nil {
				t.Fatal(err)
			}
			f.Close()
			if records, _, err = read(t, path); err != nil || len(records) != want+1 || string(records[want]) != "next" {
				t.Fatalf("after a repair: %q, %v", records, err)
			}
		}
	}
}

func TestDamageBeforeWholeRecordsIsRefusedAndLeftAlone(t *testing.T) {
	dir := t.TempDir()
	content, ends := write(t, filepath.Join(dir, "whole"), 12)
	path := filepath.Join(dir, "damaged")
	for at := range ends[len(ends)-2] {
		damaged := bytes.Clone(content)
		damaged[at] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := read(t, path)
		if _, ok := errors.AsType[*DamagedError](err); !ok {
			t.Fatalf("byte %d is changed: %v, want a *DamagedError", at, err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
			t.Fatalf("byte %d is changed: the file was touched, %v", at, err)
		}
	}
}

func TestRoomIsNoRecordAndNoDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f.MakeRoom(4096)
	for i := range 300 {
		if _, err := f.Append(fmt.Appendf(nil, "record %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Size() <= f.Size() {
		t.Fatalf("no room is made: %v, %v", info.Size(), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	records, cut, err := read(t, path)
	if err != nil || cut != 0 || len(records) != 300 || string(records[299]) != "record 299" {
		t.Fatalf("%d records, %d bytes cut off, %v", len(records), cut, err)
	}
}

func TestSyncCoversWhatWasAppendedBefore(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var group sync.WaitGroup
	for i := range 64 {
		group.Go(func() {
			offset, err := f.Append([]byte{byte(i)})
			if err != nil {
				t.Error(err)
			}
			if err := f.Sync(); err != nil {
				t.Error(err)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.synced <= offset {
				t.Errorf("synced to %d, the record is at %d", f.synced, offset)
			}
		})
	}
	group.Wait()
}

func TestRecordsOfTheWrongSizeAreRefused(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, n := range []int{0, MaxRecord + 1} {
		if _, err := f.Append(make([]byte, n)); err == nil {
			t.Errorf("a record of %d bytes was taken", n)
		}
	}
	if _, err := f.Append(make([]byte, MaxRecord)); err != nil {
		t.Error(err)
	}
}

func TestNothingIsAcceptedAfterClose(t *testing.T) {
	f, err := Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Append([]byte("x")); err == nil {
		t.Error("Append after Close succeeded")
	}
	if err := f.Sync(); err == nil {
		t.Error("Sync after Close succeeded")
	}
}

func FuzzOpenReadsAnyFileAndKeepsWhatItAccepts(f *testing.F) {
	content, _ := write(f, filepath.Join(f.TempDir(), "seed"), 4)
	f.Add(content)
	f.Add(content[:len(content)-3])
	f.Add([]byte(magic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		first, _, err := read(t, path)
		if err != nil {
			if _, ok := errors.AsType[*DamagedError](err); !ok {
				t.Fatal(err)
			}
			return
		}
		again, cut, err := read(t, path)
		if err != nil || cut != 0 || len(again) != len(first) {
			t.Fatalf("second opening: %d records after %d, cut %d, %v", len(again), len(first), cut, err)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(fmt.Sprintf("durable=%v", durable), func(b *testing.B) {
			f, err := Create(filepath.Join(b.TempDir(), "f"))
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			record := make([]byte, 200)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if _, err := f.Append(record); err != nil {
						b.Fatal(err)
					}
					if durable {
						if err := f.Sync(); err != nil {
							b.Fatal(err)
						}
					}
				}
			})
		})
	}
}
