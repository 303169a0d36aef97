package execlog

import (
	"runtime"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// allocated is how many bytes were allocated meanwhile, by whoever.
func allocated(do func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// A chunk costs the same however many came before, read and acknowledged behind the writer or not at all.
func TestCostOfAChunkDoesNotGrowWithTheLog(t *testing.T) {
	const some = 20_000
	data := make([]byte, 40)
	for name, read := range map[string]bool{"read and acknowledged": true, "nobody reads": false} {
		t.Run(name, func(t *testing.T) {
			l := inMemory(wire.OutputWindow, wire.OutputKeep)
			if !read {
				l.SetFree(true)
			}
			var taken uint64
			write := func(n int) func() {
				return func() {
					for range n {
						l.Append(wire.Stdout, data)
						if !read || l.LastSeq()%64 != 0 {
							continue
						}
						r := l.Read(taken, 1<<20)
						if len(r.Chunks) != 64 {
							t.Fatalf("%d chunks after %d, want 64", len(r.Chunks), taken)
						}
						taken = r.Next
						l.Ack(taken)
					}
				}
			}
			write(3 * some)() // until what is kept is full
			few := allocated(write(some))
			write(20 * some)()
			if many := allocated(write(some)); many > 1.3*few {
				t.Errorf("%d chunks allocate %.0f bytes, and after twenty times as many %.0f", some, few, many)
			}
		})
	}
}
