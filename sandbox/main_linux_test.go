package sandbox

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// probeName is the argv[0] under which the test binary makes one system call, or a
// short sequence, inside a sandbox and prints how it ended.
const probeName = "sandbox-test-probe"

func TestMain(m *testing.M) {
	RegisterHelper("files", filesHelper)
	Init()
	if os.Args[0] == probeName {
		probeMain(os.Args[1:])
	}
	switch os.Args[0] {
	case crippledName:
		crippledMain(os.Args[1])
	case sharedName:
		sharedMain(os.Args[1])
	case daemonName:
		daemonMain(os.Args[1])
	case poolMountName:
		poolMountMain(os.Args[1])
	case poolDaemonName:
		poolDaemonMain(os.Args[1])
	}
	code := m.Run()
	if probeDir != "" {
		os.RemoveAll(probeDir)
	}
	os.Exit(code)
}

var noContext = context.Background() // of starts that outlive a test's context

var (
	probeOnce sync.Once
	probeDir  string
)

// probe returns a root with a copy of the test binary, and its path.
func probe(t *testing.T) (root, file string) {
	t.Helper()
	probeOnce.Do(func() {
		dir, err := os.MkdirTemp("", "probe")
		if err != nil {
			t.Fatal(err)
		}
		probeDir = dir
		in, err := os.Open("/proc/self/exe")
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		out, err := os.OpenFile(filepath.Join(dir, "probe"), os.O_CREATE|os.O_WRONLY, 0o755)
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := io.Copy(out, in); err != nil {
			t.Fatal(err)
		}
	})
	return probeDir, filepath.Join(probeDir, "probe")
}

func newLauncher(t testing.TB, o Options) *Launcher {
	t.Helper()
	l, err := NewLauncher(o)
	if err != nil {
		t.Fatal(err)
	}
	launchers.Lock()
	launchers.of[t] = append(launchers.of[t], l)
	launchers.Unlock()
	t.Cleanup(func() { closeLaunchers(t) })
	return l
}

// launchers are closed before the workspaces of their test are removed: sandboxes
// that wait hold places in them.
var launchers = struct {
	sync.Mutex
	of map[testing.TB][]*Launcher
}{of: map[testing.TB][]*Launcher{}}

func closeLaunchers(t testing.TB) {
	launchers.Lock()
	all := launchers.of[t]
	delete(launchers.of, t)
	launchers.Unlock()
	for _, l := range all {
		l.Close()
	}
}

func workspace(t testing.TB) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeLaunchers(t) })
	return dir
}

// outcome is what a command printed and how it ended.
type outcome struct {
	stdout, stderr string
	Result
}

// runCommand runs a command to its end, with pipes that are read to the end.
func runCommand(t *testing.T, l *Launcher, p Policy, c Command) (outcome, error) {
	t.Helper()
	var readers [2]*os.File
	var texts [2]bytes.Buffer
	var wg sync.WaitGroup
	for i, f := range []**os.File{&c.Stdout, &c.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		readers[i], *f = r, w
	}
	proc, err := l.Start(noContext, p, c)
	c.Stdout.Close()
	c.Stderr.Close()
	for i, r := range readers {
		wg.Go(func() {
			_, _ = io.Copy(&texts[i], r)
			r.Close()
		})
	}
	wg.Wait()
	if err != nil {
		return outcome{}, err
	}
	res, err := proc.Wait()
	return outcome{texts[0].String(), texts[1].String(), res}, err
}

// shell runs a script and fails the test if it could not start.
func runShell(t *testing.T, l *Launcher, p Policy, script string) outcome {
	t.Helper()
	out, err := runCommand(t, l, p, Command{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"LC_ALL=C"}})
	if err != nil {
		t.Fatalf("%s: %v", script, err)
	}
	return out
}

// runProbe runs one probe inside and returns what it printed.
func runProbe(t *testing.T, l *Launcher, p Policy, args ...string) string {
	t.Helper()
	root, file := probe(t)
	p.Roots = append(append([]string{}, p.Roots...), root)
	out, err := runCommand(t, l, p, Command{Argv: append([]string{file}, args...), Arg0: probeName})
	if err != nil {
		t.Fatalf("probe %v: %v", args, err)
	}
	return strings.TrimSpace(out.stdout + out.stderr)
}

// outsideTmp makes a directory that the private folders of the view do not cover and
// that commands of another user can reach.
func outsideTmp(t *testing.T) string {
	t.Helper()
	cwd, _ := os.Getwd()
	for _, parent := range []string{cwd, os.Getenv("HOME"), "/srv"} {
		if !filepath.IsAbs(parent) || !searchable(parent) {
			continue
		}
		private := false
		for _, d := range []string{"/tmp", "/var/tmp", "/run", "/dev"} {
			private = private || within(parent, d)
		}
		if private {
			continue
		}
		if dir, err := os.MkdirTemp(parent, "sandbox-test"); err == nil {
			t.Cleanup(func() {
				closeLaunchers(t) // which may hold places in it
				os.RemoveAll(dir)
			})
			return dir
		}
	}
	t.Skip("needs a working directory, HOME or /srv that is writable, open to all users and not below /tmp")
	return ""
}

// searchable tells whether the commands of this process's daemons can reach path.
func searchable(path string) bool {
	for ; os.Getuid() == 0 && path != "/"; path = filepath.Dir(path) {
		if st, err := os.Stat(path); err != nil || st.Mode()&0o001 == 0 {
			return false
		}
	}
	return true
}
