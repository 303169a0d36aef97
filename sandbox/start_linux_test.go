package sandbox

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestArgumentsArriveByteForByte(t *testing.T) {
	l := newLauncher(t, Options{})
	_, file := probe(t)
	root, _ := probe(t)
	args := []string{"", " ", "a b", "\xff\xfe\x01", "ünïcödé", "\n\t\"'$`\\", "--flag=x"}
	out, err := runCommand(t, l, Policy{Mode: ReadOnly, Roots: []string{root}}, Command{Argv: append([]string{file, "argv"}, args...), Arg0: probeName})
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, a := range args {
		fmt.Fprintln(&want, len(a), hex.EncodeToString([]byte(a)))
	}
	if out.stdout != want.String() {
		t.Errorf("got\n%swant\n%s", out.stdout, want.String())
	}
}

func TestLargeArgumentListsReachExec(t *testing.T) {
	l := newLauncher(t, Options{})
	root, file := probe(t)
	many := make([]string, 120_000)
	for i := range many {
		many[i] = "abc"
	}
	large := make([]string, 14)
	for i := range large {
		large[i] = strings.Repeat("x", 128<<10-1)
	}
	for _, c := range []struct {
		name string
		args []string
	}{{"120000 arguments", many}, {"1.8 MiB in arguments of 128 KiB", large}} {
		out, err := runCommand(t, l, Policy{Mode: ReadOnly, Roots: []string{root}}, Command{Argv: append([]string{file, "count"}, c.args...), Arg0: probeName})
		total := len("count")
		for _, a := range c.args {
			total += len(a)
		}
		if want := fmt.Sprintln(len(c.args)+1, total); err != nil || out.stdout != want {
			t.Errorf("%s: %q, %v; want %q", c.name, out.stdout, err, want)
		}
	}
	_, err := l.Start(t.Context(), Policy{Mode: ReadOnly}, Command{Argv: []string{"/bin/true", strings.Repeat("x", 128<<10)}})
	var ce *CommandError
	if !errors.As(err, &ce) || ce.Op != "exec" || !errors.Is(err, syscall.E2BIG) {
		t.Errorf("an argument of 128 KiB and its end: %v, want exec E2BIG", err)
	}
}

func TestCommandErrorsNameOperationAndCause(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	for name, mode := range map[string]os.FileMode{"plain": 0o644, "script": 0o755} {
		if err := os.WriteFile(filepath.Join(ws, name), []byte("echo"), mode); err != nil {
			t.Fatal(err)
		}
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	for _, c := range []struct {
		name string
		cmd  Command
		op   string
		err  error
	}{
		{"no such program in PATH", Command{Argv: []string{"no-such-program-here"}}, "lookup", syscall.ENOENT},
		{"empty name", Command{Argv: []string{""}}, "lookup", syscall.ENOENT},
		{"not executable in PATH", Command{Argv: []string{"plain"}, Env: []string{"PATH=/nowhere:" + ws}}, "lookup", syscall.EACCES},
		{"not executable", Command{Argv: []string{"./plain"}}, "exec", syscall.EACCES},
		{"no such file", Command{Argv: []string{"/no/such/file"}}, "exec", syscall.ENOENT},
		{"directory", Command{Argv: []string{ws}}, "exec", syscall.EACCES},
		{"no interpreter line", Command{Argv: []string{"./script"}}, "exec", syscall.ENOEXEC},
		{"no such folder", Command{Argv: []string{"true"}, Dir: ws + "/none"}, "chdir", syscall.ENOENT},
		{"folder is a file", Command{Argv: []string{"true"}, Dir: ws + "/plain"}, "chdir", syscall.ENOTDIR},
		{"NUL in an argument", Command{Argv: []string{"true", "a\x00b"}}, "exec", syscall.EINVAL},
	} {
		_, err := l.Start(t.Context(), p, c.cmd)
		var ce *CommandError
		if !errors.As(err, &ce) || ce.Op != c.op || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, want %s %v", c.name, err, c.op, c.err)
		}
	}
	if _, err := l.Start(t.Context(), p, Command{}); err == nil {
		t.Error("an empty argv was started")
	}
}

func TestDirectoryUmaskAndEnvironmentOfTheCommand(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	if err := os.Mkdir(filepath.Join(ws, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	for _, c := range []struct {
		name   string
		policy Policy
		cmd    Command
		want   string
	}{
		{"first root", p, Command{Argv: []string{"pwd"}}, ws + "\n"},
		{"named folder", p, Command{Argv: []string{"pwd"}, Dir: ws + "/sub"}, ws + "/sub\n"},
		{"home without roots", Policy{Mode: ReadOnly}, Command{Argv: []string{"pwd"}}, homeDir + "\n"},
		{"default mask", p, Command{Argv: []string{"sh", "-c", "umask"}}, "0022\n"},
		{"given mask", p, Command{Argv: []string{"sh", "-c", "umask"}, Umask: 0o077}, "0077\n"},
		{"last duplicate wins", p, Command{Argv: []string{"sh", "-c", "echo $A $B"}, Env: []string{"A=1", "B=2", "A=3"}}, "3 2\n"},
		{"given HOME stays", p, Command{Argv: []string{"sh", "-c", "echo $HOME"}, Env: []string{"HOME=/x"}}, "/x\n"},
		{
			"home is private and writable", p,
			Command{Argv: []string{"sh", "-c", "echo $HOME; echo hi > $HOME/f && cat ~/f; getent passwd $(id -u) | cut -d: -f6; test $(id -un) = $USER && echo same"}},
			homeDir + "\nhi\n" + homeDir + "\nsame\n",
		},
	} {
		out, err := runCommand(t, l, c.policy, c.cmd)
		if err != nil || out.stdout != c.want {
			t.Errorf("%s: %q %q, %v; want %q", c.name, out.stdout, out.stderr, err, c.want)
		}
	}
}

func TestNothingOfTheDaemonReachesTheCommand(t *testing.T) {
	t.Setenv("SANDBOX_TEST_SECRET", "SECRET")
	l := newLauncher(t, Options{})
	p := Policy{Mode: WorkspaceWrite}
	f, err := os.Open("/etc/hostname") // an open file of the daemon
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if out, err := runCommand(t, l, p, Command{Argv: []string{"ls", "/proc/self/fd"}}); err != nil || out.stdout != "0\n1\n2\n3\n" {
		t.Errorf("descriptors %q, %v; want 0, 1, 2 and the listing itself", out.stdout, err)
	}
	if groups, _ := os.Getgroups(); os.Getuid() == 0 || len(groups) == 0 {
		if out := runShell(t, l, p, "grep Groups /proc/self/status"); strings.TrimSpace(out.stdout) != "Groups:" {
			t.Errorf("supplementary groups of the daemon are left: %q", out.stdout)
		}
	}
	want := "SigIgn: 0000000000000000\nCapInh: 0000000000000000\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\nCapBnd: 0000000000000000\nCapAmb: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2"
	if got := runProbe(t, l, p, "state"); got != want {
		t.Errorf("process state\n%s\nwant\n%s", got, want)
	}
	processes := "116" // 100, and the init's threads
	if findCgroups().parents[pidsController] != "" {
		processes = "4096" // the group has the limit
	}
	if got, want := runProbe(t, l, Policy{Mode: ReadOnly, Limits: Limits{OpenFiles: 256, FileBytes: 1 << 20, Processes: 100}}, "limits"), "256 1 "+processes+" 1048576"; got != want {
		t.Errorf("limits %q, want %q", got, want)
	}
	out := runShell(t, l, p, "env | grep -c SECRET; cat /proc/*/environ 2>/dev/null | grep -c SECRET")
	if out.stdout != "0\n0\n" {
		t.Errorf("the daemon's environment is visible: %q", out.stdout)
	}
}

func TestStandardFilesAreTheGivenOnes(t *testing.T) {
	l := newLauncher(t, Options{})
	inR, inW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.WriteString(inW, "through stdin")
		inW.Close()
	}()
	out, err := runCommand(t, l, Policy{Mode: ReadOnly}, Command{Argv: []string{"sh", "-c", "cat; echo err >&2; exit 7"}, Stdin: inR})
	inR.Close()
	if err != nil || out.stdout != "through stdin" || out.stderr != "err\n" || out.ExitCode != 7 || out.Signal != 0 {
		t.Errorf("%+v, %v", out, err)
	}
	if out := runShell(t, l, Policy{Mode: ReadOnly}, "cat; readlink /proc/self/fd/0"); out.stdout != "/dev/null\n" {
		t.Errorf("stdin without a file: %q, want /dev/null", out.stdout)
	}
	if out := runShell(t, l, Policy{Mode: ReadOnly}, "kill -USR1 $$"); out.ExitCode != -1 || out.Signal != syscall.SIGUSR1 {
		t.Errorf("killed by itself: %+v, want SIGUSR1", out.Result)
	}
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	l := newLauncher(t, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Start(ctx, Policy{Mode: ReadOnly}, Command{Argv: []string{"true"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("start with a dead context: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Start(t.Context(), Policy{Mode: ReadOnly}, Command{Argv: []string{"true"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("start after Close: %v, want ErrClosed", err)
	}
}

func TestPipesCanBeOpenedAgainByName(t *testing.T) {
	l := newLauncher(t, Options{})
	out := runShell(t, l, Policy{Mode: ReadOnly}, "echo one > /dev/stdout; echo two > /dev/stderr; echo three > /proc/self/fd/1")
	if out.stdout != "one\nthree\n" || out.stderr != "two\n" {
		t.Errorf("%q %q", out.stdout, out.stderr)
	}
}
