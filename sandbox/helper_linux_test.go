package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// filesHelper writes a word into its first argument and tells what it reads in the others.
func filesHelper(args []string) int {
	if err := os.WriteFile(args[0], []byte("written"), 0o644); err != nil {
		fmt.Println(errors.Unwrap(err))
		return 3
	}
	for _, path := range args[1:] {
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(errors.Unwrap(err).Error())
		}
		fmt.Printf("%s\n", b)
	}
	fmt.Println(os.Getuid() != 0, os.Getpid() < 100, len(os.Args))
	return 0
}

func TestHelperHasTheViewOfACommand(t *testing.T) {
	l := newLauncher(t, Options{})
	s := newDenialStage(t)
	secret := filepath.Join(s.base, "home/.ssh/id")
	for _, c := range []struct {
		name   string
		policy Policy
		file   string
		want   string
		code   int
	}{
		{"in the workspace", Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}}, s.ws + "/new", "written\npermission denied\ntrue true 4\n", 0},
		{"outside", Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}}, s.out + "/new", "read-only file system\n", 3},
		{"protected", Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}}, s.ws + "/.git/new", "read-only file system\n", 3},
		{"read-only", Policy{Mode: ReadOnly, Roots: []string{s.ws}}, s.ws + "/new", "read-only file system\n", 3},
	} {
		c.policy.HiddenPaths = []string{filepath.Dir(secret)}
		for range 2 { // cold, and made ahead
			out, err := runCommand(t, l, c.policy, Command{Helper: "files", Argv: []string{c.file, c.file, secret}})
			if err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			if out.stdout != c.want || out.ExitCode != c.code {
				t.Errorf("%s: %q, code %d, want %q, %d (%s)", c.name, out.stdout, out.ExitCode, c.want, c.code, out.stderr)
			}
		}
	}
	if b, err := os.ReadFile(s.ws + "/new"); err != nil || string(b) != "written" {
		t.Errorf("the file of the workspace is %q, %v", b, err)
	}
}

func TestUnknownHelperIsNotStarted(t *testing.T) {
	l := newLauncher(t, Options{})
	for _, c := range []Command{{Helper: "none"}, {Helper: "files", Arg0: "x"}} {
		var ce *CommandError
		if _, err := l.Start(noContext, Policy{Mode: ReadOnly}, c); !errors.As(err, &ce) || ce.Op != "lookup" {
			t.Errorf("%+v: %v, want that it is not found", c, err)
		}
	}
	// The name alone does not make a command one: a helper's own program is not in reach by it.
	out, err := runCommand(t, l, Policy{Mode: ReadOnly}, Command{Argv: []string{"sh", "-c", "exit 3"}, Arg0: roleHelper + "files"})
	if err != nil || out.ExitCode != 3 || strings.Contains(out.stdout, "written") {
		t.Errorf("a command by that name: %+v, %v", out, err)
	}
	if _, err := l.Start(noContext, Policy{Mode: ReadOnly}, Command{}); !errors.Is(err, syscall.EINVAL) && err == nil {
		t.Error("a command without words is started")
	}
}
