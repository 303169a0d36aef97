package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestRootsAreWritableOnlyUnderWorkspaceWrite(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	if err := os.WriteFile(filepath.Join(ws, "f"), []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := runShell(t, l, Policy{Mode: ReadOnly, Roots: []string{ws}}, "cat f; echo new > f; echo x > g")
	if out.stdout != "old" || strings.Count(out.stderr, "Read-only") != 2 {
		t.Errorf("read-only: %q %q", out.stdout, out.stderr)
	}
	out = runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}}, "echo new > f && echo x > g && mkdir -p a/b && mv g a/b/ && ls -A")
	if out.ExitCode != 0 {
		t.Errorf("workspace-write: %q %q", out.stdout, out.stderr)
	}
	st, err := os.Stat(filepath.Join(ws, "a/b/g"))
	if err != nil {
		t.Fatal(err)
	}
	if uid := int(st.Sys().(*syscall.Stat_t).Uid); uid != os.Getuid() {
		t.Errorf("a new file belongs to uid %d on disk, want the owner of the root, %d", uid, os.Getuid())
	}
}

func TestNestedRootsAndReadableFoldersOutside(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	inner := filepath.Join(ws, "in", "ner")
	if err := os.MkdirAll(inner, 0o755); err != nil {
		t.Fatal(err)
	}
	out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{inner, ws}}, "echo x > "+inner+"/f && echo y > "+ws+"/g && test -d "+inner+"/.git && cd /etc && pwd")
	if out.ExitCode != 0 || out.stdout != "/etc\n" {
		t.Errorf("%+v", out)
	}
}

func TestEveryKindOfProtectedNameStaysReadOnly(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	if err := os.WriteFile(filepath.Join(ws, ".agents"), []byte("file"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	for _, script := range []string{"echo x > .agents", "rm -f .agents", "mv .agents a", "mkdir .codex/x", "rmdir .codex", "mv .postern p"} {
		if out := runShell(t, l, p, script); out.ExitCode == 0 {
			t.Errorf("%s: succeeded", script)
		}
	}
	if b, _ := os.ReadFile(filepath.Join(ws, ".agents")); string(b) != "file" {
		t.Errorf(".agents is %q", b)
	}
	if out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}}, "echo x > .agents"); out.ExitCode != 0 {
		t.Errorf("an empty list still protects: %q", out.stderr)
	}
}

func TestPlaceholdersAreSharedAndRemoved(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	ws := workspace(t)
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	long, err := l.Start(t.Context(), p, Command{Argv: []string{"sh", "-c", "read x; mkdir .git/hooks || exit 9"}, Stdin: r})
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	if out := runShell(t, l, p, "mkdir .git/hooks"); out.ExitCode == 0 {
		t.Error("missing .git was not protected")
	}
	if _, err := os.Lstat(filepath.Join(ws, ".git")); err != nil {
		t.Errorf("the placeholder is gone while a command uses it: %v", err)
	}
	w.Close()
	if res, err := long.Wait(); err != nil || res.ExitCode != 9 {
		t.Errorf("the longer command could write after the shorter one ended: %+v, %v", res, err)
	}
	left, err := os.ReadDir(ws)
	if err != nil || len(left) != 0 {
		t.Errorf("left in the workspace: %v, %v", left, err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if out := runShell(t, l, p, "mkdir .git/hooks"); out.ExitCode == 0 {
				t.Error("not protected with others around")
			}
		})
	}
	wg.Wait()
	if left, _ := os.ReadDir(ws); len(left) != 0 {
		t.Errorf("left in the workspace: %v", left)
	}
}

func TestPoliciesThatMakeNoSenseAreRefused(t *testing.T) {
	l := newLauncher(t, Options{HiddenPaths: []string{"/usr/share"}})
	for name, p := range map[string]Policy{
		"zero":               {},
		"full without leave": {Mode: FullAccess},
		"relative root":      {Mode: ReadOnly, Roots: []string{"tmp"}},
		"unclean root":       {Mode: ReadOnly, Roots: []string{"/tmp/../etc"}},
		"whole machine":      {Mode: WorkspaceWrite, Roots: []string{"/"}},
		"proc":               {Mode: WorkspaceWrite, Roots: []string{"/proc/self"}},
		"run":                {Mode: WorkspaceWrite, Roots: []string{"/run"}},
		"hidden root":        {Mode: ReadOnly, Roots: []string{"/usr/share/doc"}},
		"protected path":     {Mode: WorkspaceWrite, Roots: []string{"/tmp"}, ProtectedNames: []string{"a/b"}},
		"protected dots":     {Mode: WorkspaceWrite, Roots: []string{"/tmp"}, ProtectedNames: []string{".."}},
		"relative hidden":    {Mode: ReadOnly, HiddenPaths: []string{"x"}},
		"negative tmp":       {Mode: ReadOnly, TmpBytes: -1},
		"missing root":       {Mode: ReadOnly, Roots: []string{"/no/such/root"}},
		"root is a file":     {Mode: ReadOnly, Roots: []string{"/etc/passwd"}},
	} {
		_, err := l.Start(t.Context(), p, Command{Argv: []string{"true"}})
		var se *SetupError
		if !errors.As(err, &se) {
			t.Errorf("%s: %v, want a SetupError", name, err)
		}
	}
}

func TestTemporaryFoldersArePrivateAndBounded(t *testing.T) {
	l := newLauncher(t, Options{})
	mark, err := os.CreateTemp("", "mark")
	if err != nil {
		t.Fatal(err)
	}
	mark.Close()
	defer os.Remove(mark.Name())
	out := runShell(t, l, Policy{Mode: ReadOnly, TmpBytes: 4 << 20}, `for d in /tmp /var/tmp /dev/shm $HOME; do
test -w $d && cp /bin/true $d/t && $d/t && echo runs; done
ls /tmp; head -c 8M /dev/zero > /tmp/big || echo full; ls /tmp/`+filepath.Base(mark.Name()))
	if out.stdout != "runs\nruns\nruns\nruns\nt\nfull\n" {
		t.Errorf("%q %q", out.stdout, out.stderr)
	}
}
