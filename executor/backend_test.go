package executor

import (
	"os"
	"testing"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) {
	sandbox.Init()
	if os.Getenv(crashVariable) != "" {
		dieWhileStarting()
	}
	wiretest.RunWithoutLeaks(m)
}

// newSandboxed is a backend of the product's own parts, with one workspace.
func newSandboxed(t *testing.T) (*Local, string) {
	t.Helper()
	workspace := t.TempDir() // first, so that it goes when no warm sandbox holds it any more
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b, err := NewLocal(LocalConfig{
		Runner: NewSandboxRunner(l), Workspaces: []string{workspace}, State: t.TempDir(),
		Environ: append(os.Environ(), "SUITE_MARK=kept", "SUITE_EXCLUDED=x", "POSTERN_SECRET=x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, workspace
}

func TestLocalConformsToTheSuite(t *testing.T) {
	wiretest.TestBackend(t, func(t *testing.T) (wire.ExecBackend, wiretest.BackendOptions) {
		b, w := newSandboxed(t)
		return b, wiretest.BackendOptions{Workspace: w, Dir: w}
	})
}
