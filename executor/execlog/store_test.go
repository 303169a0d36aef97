package execlog

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/wire"
)

func TestLogThatDropsTakesNoMoreThanItsFilesMay(t *testing.T) {
	dir := t.TempDir()
	const limit = 1 << 20
	m := newModel(Config{Files: openStore(t, dir, 1<<30), Name: "a", Spill: true, MaxBytes: limit})
	for i := range 300 {
		data := bytes.Repeat([]byte{byte(i)}, 10_000)
		m.note(wire.Stdout, data)
		m.Append(wire.Stdout, data)
		if n := onDisk(t, dir, "a"); n > limit || n < min(limit*14/16, int64(i)*10_000) {
			t.Fatalf("after %d chunks the files take %d of %d", i+1, n, limit)
		}
	}
	if kept, err := m.readAll(Position{}, 1<<20); err != nil || len(kept) < 90 || !slices.Contains(kept, 300) {
		t.Fatalf("%d chunks are kept, %v", len(kept), err)
	}
	if err := m.Err(); err != nil {
		t.Fatalf("a log that is full has an error: %v", err)
	}
}

func TestLogThatBlocksWaitsUntilItsOldestSegmentMayGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		l := New(Config{Files: openStore(t, dir, 1<<30), Name: "a", Spill: true, OnFull: wire.OnFullBlock, MaxBytes: 1 << 20})
		appended, stop := appending(l, 1000)
		n := appended()
		if size := onDisk(t, dir, "a"); size > 1<<20 || size < 15<<16 {
			t.Fatalf("it waits with %d bytes on the disk", size)
		}
		l.Ack(l.segments[0].last - 1)
		if more := appended(); more != n {
			t.Fatalf("%d chunks went in before a segment was acknowledged", more-n)
		}
		l.Ack(l.segments[0].last)
		more := appended()
		if more <= n || l.Read(0, 1).Gap.To != l.AckedSeq() {
			t.Fatalf("%d chunks after %d, acknowledged %d, read %+v", more, n, l.AckedSeq(), l.Read(0, 1).Gap)
		}
		l.SetFree(true)
		l.SetFree(false)
		stop()
		l.Discard()
	})
}

func TestDiscardLetsAnAppendGoThatWaits(t *testing.T) {
	for _, spill := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := openStore(t, t.TempDir(), 1<<20)
			l := New(Config{Window: 1000, Files: store, Name: "a", Spill: spill, OnFull: wire.OnFullBlock, MaxBytes: 2000})
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					for range 100 {
						l.Append(wire.Stdout, make([]byte, 100))
					}
				})
			}
			synctest.Wait()
			l.Discard()
			group.Wait()
			if r := l.Read(0, 1000); r.Gap == nil || *r.Gap != (wire.Gap{From: 1, To: 200, Bytes: 20_000}) || store.Used() != 0 {
				t.Fatalf("after Discard: %+v, %d bytes used", r.Gap, store.Used())
			}
		})
	}
}

func TestLogsOfAFullStoreDropTheirOwnOldest(t *testing.T) {
	dir := t.TempDir()
	const quota = 40_000
	store := openStore(t, dir, quota)
	var logs []*modelLog
	for i := range 4 {
		logs = append(logs, newModel(Config{Files: store, Name: fmt.Sprint(i), Spill: true, MaxBytes: 1 << 20}))
	}
	full := false
	for i := range 1000 {
		m := logs[i%len(logs)]
		data := bytes.Repeat([]byte{byte(i)}, 1000)
		m.note(wire.Stderr, data)
		m.Append(wire.Stderr, data)
		if used := store.Used(); used > quota {
			t.Fatalf("%d bytes are used of %d", used, quota)
		}
		full = full || store.Full()
	}
	if !full {
		t.Error("a store without room was never full")
	}
	for _, m := range logs {
		if kept, err := m.readAll(Position{}, 5000); err != nil || !slices.Contains(kept, uint64(len(m.all))) || m.Err() != nil {
			t.Fatalf("%d chunks are kept, %v, Err %v", len(kept), err, m.Err())
		}
		m.Discard()
	}
	if store.Used() != 0 || store.Full() {
		t.Fatalf("%d bytes are used of nothing", store.Used())
	}
}

func TestSettleKeepsTheNewestThatFits(t *testing.T) {
	store := openStore(t, t.TempDir(), 5000)
	m := newModel(Config{Window: 10_000, Keep: 10_000, Files: store, Name: "a"})
	for i := range 9 {
		data := bytes.Repeat([]byte{byte(i)}, 900)
		m.note(wire.Stdout, data)
		m.Append(wire.Stdout, data)
	}
	m.exit = &wire.ExitStatus{Cause: wire.CauseExited}
	m.End(*m.exit)
	if err := m.Settle(); err == nil || len(m.entries) != 9 {
		t.Fatalf("what somebody may still come for was given up: %d chunks, %v", len(m.entries), err)
	}
	m.Ack(9)
	if err := m.Settle(); err != nil {
		t.Fatal(err)
	}
	kept, err := m.readAll(Position{}, 1<<20)
	if err != nil || !slices.Equal(kept, []uint64{5, 6, 7, 8, 9}) {
		t.Fatalf("kept %v, %v", kept, err)
	}
}

func TestEndedLogsHoldNoDescriptorAndSurviveARestart(t *testing.T) {
	open := func() int {
		files, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("no /proc: ", err)
		}
		return len(files)
	}
	dir := t.TempDir()
	store := openStore(t, dir, 1<<30)
	before := open()
	var logs []*Log
	for i := range 100 {
		l := New(Config{Window: 1 << 20, Files: store, Name: fmt.Sprintf("%x", i), Spill: i%2 == 0})
		for range i % 3 { // some print nothing, and have no file
			l.Append(wire.Stdout, []byte("x"))
		}
		l.End(wire.ExitStatus{Cause: wire.CauseExited})
		if err := l.Settle(); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	if n := open(); n > before+5 {
		t.Errorf("%d descriptors are open, %d were before", n, before)
	}
	again := openStore(t, dir, 1<<30)
	names, err := again.Names()
	if err != nil || len(names) != len(logs)*2/3 || again.Used() != store.Used() {
		t.Fatalf("%d names, %v, %d bytes used, want %d", len(names), err, again.Used(), store.Used())
	}
	for i, l := range logs {
		got, repair := recovered(t, again, fmt.Sprintf("%x", i))
		if sameEpoch := got.Epoch() == l.Epoch(); repair != (Repair{}) || sameEpoch != (l.LastSeq() > 1) || got.LastSeq() != l.LastSeq()-1 {
			t.Fatalf("log %d: %+v, last %d of %d", i, repair, got.LastSeq(), l.LastSeq())
		}
	}
}

func TestManyLogsOfMuchOutputCostLittleMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("writes 80 MB")
	}
	store := openStore(t, t.TempDir(), 1<<40)
	heap := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	const logs, each, chunk = 20, 4 << 20, 400
	before := heap()
	var all []*Log
	for i := range logs {
		l := New(Config{Files: store, Name: fmt.Sprintf("%x", i), Spill: true})
		for range each / chunk {
			l.Append(wire.Stdout, make([]byte, chunk))
		}
		all = append(all, l)
	}
	if per := int64(heap()-before) / logs; per > 256<<10 {
		t.Errorf("a log of %d bytes costs %d bytes of memory", each, per)
	} else {
		t.Logf("%d bytes of memory for each log of %d", per, each)
	}
	for _, l := range all {
		l.End(wire.ExitStatus{Cause: wire.CauseExited})
		if err := l.Settle(); err != nil {
			t.Fatal(err)
		}
	}
	if per := int64(heap()-before) / logs; per > 32<<10 {
		t.Errorf("an ended log of %d bytes costs %d bytes of memory", each, per)
	} else {
		t.Logf("%d bytes of memory for each when ended", per)
	}
	for _, l := range all {
		l.Discard()
	}
}

func TestReadersAtAllPlacesSeeTheSameLogWhileItGrows(t *testing.T) {
	for _, spill := range []bool{false, true} {
		store := openStore(t, filepath.Join(t.TempDir(), "logs"), 300_000)
		l := New(Config{Window: 200_000, Keep: 100_000, Files: store, Name: "a", Spill: spill, MaxBytes: 200_000})
		l.SetFree(true)
		writeAndRead(t, l)
		l.Discard()
		if store.Used() != 0 {
			t.Errorf("%d bytes are used of nothing", store.Used())
		}
	}
}

// writeAndRead has two writers and four readers, one of which acknowledges, until the log is settled.
func writeAndRead(t *testing.T, l *Log) {
	var writers, readers sync.WaitGroup
	const each = 1500
	for _, stream := range []wire.OutputStream{wire.Stdout, wire.Stderr} {
		writers.Go(func() {
			for i := range each {
				l.Append(stream, bytes.Repeat([]byte{byte(i)}, 1+i%500))
			}
		})
	}
	var total uint64
	for i := range each {
		total += 2 * uint64(1+i%500)
	}
	for i := range 4 {
		readers.Go(func() {
			limit := []int{1, 500, 5000, 100_000}[i]
			next := map[wire.OutputStream]int{}
			var p Position
			var came uint64
			gaps := false
			for {
				<-l.Wake(p.Seq)
				r, at := l.ReadFrom(p, limit)
				if r.Gap != nil {
					came += r.Gap.Bytes
					gaps = true
				}
				for _, c := range r.Chunks {
					came += uint64(len(c.Data))
					n := int(c.Data[0])
					if want := next[c.Stream]; !gaps && n != want%256 {
						t.Errorf("%v: chunk %d came, want %d", c.Stream, n, want%256)
					}
					next[c.Stream]++
				}
				if came != at.Bytes || at.Seq < p.Seq {
					t.Errorf("at %+v %d bytes came", at, came)
					return
				}
				if i == 3 {
					l.Ack(at.Seq)
				}
				if p = at; r.Exit != nil {
					break
				}
			}
			if came != total {
				t.Errorf("%d bytes came, want %d", came, total)
			}
		})
	}
	writers.Wait()
	l.End(wire.ExitStatus{Cause: wire.CauseExited})
	if err := l.Settle(); err != nil {
		t.Error(err)
	}
	readers.Wait()
}

func BenchmarkAppend(b *testing.B) {
	for _, spill := range []bool{false, true} {
		for _, size := range []int{100, wire.MaxChunk} {
			b.Run(fmt.Sprintf("spill=%v/bytes=%d", spill, size), func(b *testing.B) {
				l := New(Config{Window: 4 << 20, Keep: 1 << 20, Files: openStore(b, b.TempDir(), 1<<30), Name: "a", Spill: spill, MaxBytes: 64 << 20})
				l.SetFree(true)
				b.SetBytes(int64(size))
				for b.Loop() {
					l.Append(wire.Stdout, make([]byte, size))
				}
				l.Discard()
			})
		}
	}
}
