package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestGoIsToldNotToStampWhereGitIsOnlyHeld(t *testing.T) {
	l := newLauncher(t, Options{})
	held, real, file := workspace(t), workspace(t), workspace(t)
	if err := os.MkdirAll(filepath.Join(real, ".git", "refs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(file, ".git"), []byte("gitdir: /elsewhere\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		policy Policy
		env    []string
		want   string
	}{
		{"no repository", Policy{Mode: WorkspaceWrite, Roots: []string{held}}, nil, "-buildvcs=false\n"},
		{"no repository beside one", Policy{Mode: WorkspaceWrite, Roots: []string{real, held}}, nil, "-buildvcs=false\n"},
		{"flags of one's own", Policy{Mode: WorkspaceWrite, Roots: []string{held}}, []string{"GOFLAGS=-mod=mod"}, "-mod=mod\n"},
		{"a repository", Policy{Mode: WorkspaceWrite, Roots: []string{real}}, nil, "\n"},
		{"a work tree", Policy{Mode: WorkspaceWrite, Roots: []string{file}}, nil, "\n"},
		{"nothing held", Policy{Mode: WorkspaceWrite, Roots: []string{workspace(t)}, ProtectedNames: []string{}}, nil, "\n"},
		{"read-only", Policy{Mode: ReadOnly, Roots: []string{workspace(t)}}, nil, "\n"},
	} {
		for range 2 {
			out, err := runCommand(t, l, c.policy, Command{Argv: []string{"/bin/sh", "-c", "echo $GOFLAGS"}, Env: c.env})
			if err != nil || out.stdout != c.want {
				t.Errorf("%s: GOFLAGS is %q, %v, want %q", c.name, out.stdout, err, c.want)
			}
		}
	}
}

// What lies below a workspace may become one later, and what it has by the name of .git is a command's then.
func TestLookingForAHeldGitFollowsAndWaitsForNothing(t *testing.T) {
	link, pipe, empty := workspace(t), workspace(t), t.TempDir()
	if err := os.Symlink(empty, filepath.Join(link, ".git")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(pipe, ".git"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, root := range []string{link, pipe} {
		p := Policy{Mode: WorkspaceWrite, Roots: []string{root}}
		if holdsGit(p) {
			t.Errorf("%s: what is no directory is taken for an empty one", root)
		}
		if _, err := newLauncher(t, Options{}).Start(noContext, p, Command{Argv: []string{"true"}}); err == nil {
			t.Errorf("%s: a command starts where .git cannot be protected", root)
		}
	}
}
