package execlog

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// BenchmarkGrowth appends ever more chunks of 40 bytes to one log with the product's bounds, whose reader takes and
// acknowledges 64 at a time behind the writer. Then it looks for places anywhere in what is kept, and reads 64 KiB
// from each.
//
//	go test -run '^$' -bench Growth -benchtime 1x ./executor/execlog
//
// On 2 busy processors (Xeon, Go 1.26.8, load 5, ext4), with what the log holds of the heap after a collection:
//
//	where   chunks      ns/chunk  B/chunk  KiB-kept  ns/Position  ns/ReadFrom
//	memory  10,000           278      323       917          219      145,000
//	memory  100,000          385      322       977          289      149,000
//	memory  1,000,000        497      322       977          251      189,000
//	memory  10,000,000       506      322       978          304      138,000
//	files   10,000         2,404      258        63      133,000      703,000
//	files   100,000        1,870      259        65      180,000      868,000
//	files   1,000,000      1,431      259        83      133,000      766,000
//	files   10,000,000     1,781      259       168      137,000      679,000
//
// In memory the first 10,000 chunks only fill what is kept and pay no trimming yet. In files what is held rises by a mark for
// each 64 KiB of them, until they are full at 256 MiB; a place is looked for from the mark before it.
func BenchmarkGrowth(b *testing.B) {
	for _, where := range []string{"memory", "files"} {
		for _, n := range []int{1e4, 1e5, 1e6, 1e7} {
			b.Run(fmt.Sprintf("%s/chunks=%d", where, n), func(b *testing.B) {
				for range b.N {
					growTo(b, n, where == "files")
				}
			})
		}
	}
}

func growTo(b *testing.B, n int, files bool) {
	cfg := Config{Window: wire.OutputWindow, Keep: wire.OutputKeep}
	if files {
		cfg.Files, cfg.Name, cfg.Spill = openStore(b, b.TempDir(), 8<<30), "a", true
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	l := New(cfg)
	defer l.Discard()
	var p Position
	begun := time.Now()
	for range n {
		l.Append(wire.Stdout, make([]byte, 40))
		if l.LastSeq()%64 == 0 {
			var r wire.ReadResponse
			if r, p = l.ReadFrom(p, 1<<20); len(r.Chunks) != 64 || r.Gap != nil {
				b.Fatalf("%d chunks and gap %v up to %d, want 64 chunks", len(r.Chunks), r.Gap, p.Seq)
			}
			l.Ack(p.Seq)
		}
	}
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(took.Nanoseconds())/float64(n), "ns/chunk")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(n), "B/chunk")
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric((float64(after.HeapAlloc)-float64(before.HeapAlloc))/1024, "KiB-kept")
	seek(b, l)
}

// seek reports what a place costs, and a read from there.
func seek(b *testing.B, l *Log) {
	const times = 1000
	r := l.Read(0, 1)
	first, last := r.Next-uint64(len(r.Chunks)), l.LastSeq()
	var finding, reading time.Duration
	for range times {
		seq := first + rand.Uint64N(last-first)
		begun := time.Now()
		p := l.Position(seq)
		found := time.Now()
		r, _ := l.ReadFrom(p, 64<<10)
		reading += time.Since(found)
		finding += found.Sub(begun)
		if r.Gap != nil || len(r.Chunks) == 0 || r.Chunks[0].Seq != seq+1 {
			b.Fatalf("from %d of %d to %d: %d chunks and gap %v", seq, first, last, len(r.Chunks), r.Gap)
		}
	}
	b.ReportMetric(float64(finding.Nanoseconds())/times, "ns/Position")
	b.ReportMetric(float64(reading.Nanoseconds())/times, "ns/ReadFrom")
}
