package executor_test

import (
	"sync/atomic"
	"testing"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// BenchmarkExec is a command that prints a line, from start to exit, without a sandbox and
// without a network: the difference between the two is what it costs that the exec outlives this
// process. DURABILITY.md has the figures.
func BenchmarkExec(b *testing.B) {
	for name, durable := range map[string]bool{"memory": false, "durable": true} {
		for parallel, width := range map[string]int{"one": 1, "many": 32} {
			b.Run(name+"/"+parallel, func(b *testing.B) {
				cfg := executor.LocalConfig{Runner: new(executortest.Runner), MaxExecs: 1 << 20}
				if durable {
					cfg.State = b.TempDir()
				}
				l, err := executor.NewLocal(cfg)
				if err != nil {
					b.Fatal(err)
				}
				defer l.Close()
				var left atomic.Int64
				left.Store(int64(b.N))
				b.ResetTimer()
				done := make(chan error)
				for range width {
					go func() {
						var err error
						for err == nil && left.Add(-1) >= 0 {
							err = startAndWait(b, l)
						}
						done <- err
					}()
				}
				for range width {
					if err := <-done; err != nil {
						b.Error(err)
					}
				}
			})
		}
	}
}

func startAndWait(b testing.TB, l *executor.Local) error {
	p, err := l.Start(b.Context(), wire.ExecParams{Argv: []string{"echo", "x"}})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.Wait(b.Context())
	return err
}
