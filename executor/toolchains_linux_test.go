//go:build toolchains

package executor

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// These tests run the tools that people build with, in the product's own sandbox and backend: workspace-write, the default
// policy, no network but the sandbox's loopback. They need the tools, so that the build tag toolchains asks for them; the
// stage "toolchains" of .ci/run installs what it takes and runs them as root and as an ordinary user. sandbox/README.md says
// what they found.

// patience bounds one command. It is generous: only a command that hangs meets it.
const patience = 4 * time.Minute

// bench is a sandboxed backend with one workspace.
type bench struct {
	t         *testing.T
	backend   *Local
	workspace string
	env       []string // of every command
}

// newBench is a bench on which these programs can be called. Without one of them the test is skipped, and with CI=true it fails.
func newBench(t *testing.T, programs ...string) *bench {
	t.Helper()
	backend, workspace := newSandboxed(t)
	b := &bench{t: t, backend: backend, workspace: workspace}
	b.need(programs...)
	return b
}

// need skips the test where one of these programs cannot be called, or fails it with CI=true.
func (b *bench) need(programs ...string) {
	b.t.Helper()
	for _, program := range programs {
		if b.try("command -v "+program).code == 0 {
			continue
		}
		if os.Getenv("CI") == "true" {
			b.t.Fatalf("%s is missing: .ci/run toolchains installs it", program)
		}
		b.t.Skipf("needs %s", program)
	}
}

// ended is what a command left.
type ended struct {
	stdout, stderr string
	code           int // as a shell shows it
	status         wire.ExitStatus
}

// start runs a command to its end with this input, which may be nil.
func (b *bench) start(p wire.ExecParams, input []byte) ended {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	p.Env = append(append([]string{}, b.env...), p.Env...)
	h, err := b.backend.Start(ctx, p)
	if err != nil {
		b.t.Fatalf("%q: %v", p.Argv, err)
	}
	defer h.Close()
	if p.Stdin {
		if err := h.Write(ctx, 0, input); err != nil {
			b.t.Fatalf("%q: its input: %v", p.Argv, err)
		}
		if err := h.CloseStdin(ctx); err != nil {
			b.t.Fatalf("%q: the end of its input: %v", p.Argv, err)
		}
	}
	var out, errs bytes.Buffer
	var e ended
	for event, err := range h.Events(ctx, 0) {
		switch {
		case err != nil:
			b.t.Fatalf("%q: %v after %q and %q", p.Argv, err, out.String(), errs.String())
		case event.Gap != nil:
			b.t.Fatalf("%q: output is missing", p.Argv)
		case event.Exit != nil:
			e.status, e.code = *event.Exit, event.Exit.ShellCode()
		case event.Chunk.Stream == wire.Stderr:
			errs.Write(event.Chunk.Data)
		default:
			out.Write(event.Chunk.Data)
		}
	}
	e.stdout, e.stderr = out.String(), errs.String()
	return e
}

// try runs a script in the workspace.
func (b *bench) try(script string) ended {
	b.t.Helper()
	return b.start(wire.ExecParams{Argv: []string{"/bin/sh", "-euc", script}}, nil)
}

// run is try of a script that must succeed, and what it printed without the last line end.
func (b *bench) run(script string) string {
	b.t.Helper()
	e := b.try(script)
	if e.code != 0 {
		b.t.Fatalf("%s\nended with %d (%+v)\nstdout: %s\nstderr: %s", script, e.code, e.status, e.stdout, e.stderr)
	}
	b.t.Logf("%s\nstdout: %s\nstderr: %s", script, e.stdout, e.stderr)
	return strings.TrimSuffix(e.stdout, "\n")
}

// wants is run of a script that must print this.
func (b *bench) wants(script, want string) {
	b.t.Helper()
	if got := b.run(script); got != want {
		b.t.Errorf("%s\nprinted %q\nwant    %q", script, got, want)
	}
}

// file puts a file into the workspace, as its owner would.
func (b *bench) file(name, text string) {
	b.t.Helper()
	path := filepath.Join(b.workspace, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
}
