package executor

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	os.Exit(m.Run())
}

func TestSmoke(t *testing.T) {
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ws := t.TempDir()
	b, err := NewLocal(LocalConfig{Runner: NewSandboxRunner(l), Workspaces: []string{ws}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for range 5 {
		begin := time.Now()
		p, err := b.Start(context.Background(), wire.ExecParams{Argv: []string{"sh", "-c", "echo hi; id; pwd; exit 3"}})
		if err != nil {
			t.Fatal(err)
		}
		var out []byte
		for e, err := range p.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil {
				out = append(out, e.Chunk.Data...)
			}
			if e.Exit != nil {
				t.Logf("%q %v %v", out, *e.Exit, time.Since(begin))
			}
		}
		p.Close()
	}
}
