package executor_test

import (
	"sync"
	"testing"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func TestStartsOfOneIDAtTheSameMomentAreOne(t *testing.T) {
	inBubble(t, executor.LocalConfig{State: t.TempDir()}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		const rounds = 20
		for range rounds {
			p := command("true")
			var starting sync.WaitGroup
			for range 4 {
				starting.Go(func() {
					h, err := b.Start(t.Context(), p)
					if err != nil {
						t.Error(err)
						return
					}
					h.Close()
				})
			}
			starting.Wait()
		}
		if n := r.Starts(); n != rounds {
			t.Errorf("%d commands ran, want %d", n, rounds)
		}
	})
}

func TestWhoHasReadExitCanRemoveTheExec(t *testing.T) {
	inBubble(t, executor.LocalConfig{State: t.TempDir()}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		for range 50 {
			h := begin(t, b, command("echo", "x"))
			if _, err := h.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := b.Remove(t.Context(), wire.ExecRef{ID: h.ID()}); err != nil {
				t.Errorf("Remove at once after Exit: %v", err)
			}
			h.Close()
		}
	})
}
