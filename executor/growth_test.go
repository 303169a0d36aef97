package executor_test

import (
	"runtime"
	"testing"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
)

// cost is what was allocated, in bytes and in pieces, whoever did it.
type cost struct{ bytes, pieces float64 }

func costOf(do func()) cost {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return cost{float64(after.TotalAlloc - before.TotalAlloc), float64(after.Mallocs - before.Mallocs)}
}

// An exec costs the same however many were started before: anything that walks or copies what is remembered would double with it.
func TestCostOfAnExecDoesNotGrowWithThoseRemembered(t *testing.T) {
	for name, durable := range map[string]bool{"memory": false, "durable": true} {
		t.Run(name, func(t *testing.T) {
			cfg := executor.LocalConfig{Runner: new(executortest.Runner)}
			if durable {
				cfg.State = t.TempDir()
			}
			l, err := executor.NewLocal(cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			const some = 300
			run := func(n int) func() {
				return func() {
					for range n {
						if err := startAndWait(t, l); err != nil {
							t.Fatal(err)
						}
					}
				}
			}
			run(some)() // what is made once
			few := costOf(run(some))
			run(10 * some)()
			many := costOf(run(some))
			if many.bytes > 1.5*few.bytes || many.pieces > 1.5*few.pieces {
				t.Errorf("%d execs cost %.0f bytes in %.0f pieces, and after ten times as many %.0f in %.0f", some, few.bytes, few.pieces, many.bytes, many.pieces)
			}
		})
	}
}
