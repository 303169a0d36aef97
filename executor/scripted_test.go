package executor_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// inBubble runs a test with an executor's backend whose commands live in memory, on simulated time.
func inBubble(t *testing.T, cfg executor.LocalConfig, test func(t *testing.T, r *executortest.Runner, b *executor.Local)) {
	synctest.Test(t, func(t *testing.T) {
		r := new(executortest.Runner)
		if cfg.Runner == nil {
			cfg.Runner = r
		}
		b, err := executor.NewLocal(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		test(t, r, b)
	})
}

func command(argv ...string) wire.ExecParams {
	return wire.ExecParams{ID: wire.NewExecID(), Argv: argv}
}

func begin(t *testing.T, b wire.ExecBackend, p wire.ExecParams) wire.ExecProcess {
	t.Helper()
	proc, err := b.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return proc
}

// result is everything that a command printed, and how it ended.
type result struct {
	stdout, stderr string
	exit           wire.ExitStatus
	after          time.Duration // from the call to the end
}

func await(t *testing.T, p wire.ExecProcess) (r result) {
	t.Helper()
	start := time.Now()
	for e, err := range p.Events(t.Context(), 0) {
		switch {
		case err != nil:
			t.Fatal(err)
		case e.Gap != nil:
			t.Fatalf("gap %+v", e.Gap)
		case e.Exit != nil:
			r.exit, r.after = *e.Exit, time.Since(start)
		case e.Chunk.Stream == wire.Stderr:
			r.stderr += string(e.Chunk.Data)
		default:
			r.stdout += string(e.Chunk.Data)
		}
	}
	return r
}

func wantCode(t *testing.T, what string, err error, code wire.Code) {
	t.Helper()
	if err == nil || wire.CodeOf(err) != code {
		t.Errorf("%s: %v, want code %v", what, err, code)
	}
}

// gated holds every start until the gate opens, and then fails with err if there is one.
type gated struct {
	executor.Runner
	gate chan struct{}
	err  error

	mu    sync.Mutex
	calls int
}

func (g *gated) Run(ctx context.Context, s executor.Spec) (executor.Running, error) {
	g.mu.Lock()
	g.calls++
	err := g.err
	g.mu.Unlock()
	<-g.gate
	if err != nil {
		return nil, err
	}
	return g.Runner.Run(ctx, s)
}

func (g *gated) tried() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.calls
}

func (g *gated) fail(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.err = err
}

func newGated(open bool) (*gated, *executortest.Runner) {
	r := new(executortest.Runner)
	g := &gated{Runner: r, gate: make(chan struct{})}
	if open {
		close(g.gate)
	}
	return g, r
}

// readSlowly takes the output in small steps with pauses on the simulated clock.
func readSlowly(t *testing.T, p wire.ExecProcess, pause time.Duration) (out []byte, exit wire.ExitStatus) {
	t.Helper()
	for after := uint64(0); ; {
		r, err := p.Read(t.Context(), wire.ReadRequest{After: after, MaxBytes: 100_000, Wait: time.Hour})
		if err != nil || r.Gap != nil {
			t.Fatalf("Read: %v, gap %+v", err, r.Gap)
		}
		for _, c := range r.Chunks {
			out = append(out, c.Data...)
		}
		if after = r.Next; r.Exit != nil {
			return out, *r.Exit
		}
		<-time.After(pause)
	}
}

func wantPattern(t *testing.T, got []byte, n int) {
	t.Helper()
	want := executortest.Pattern(n)
	if !bytes.Equal(got, want) {
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("%d bytes of output, want %d; they differ from byte %d on", len(got), n, at)
	}
}
