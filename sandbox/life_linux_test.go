package sandbox

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// daemonName is the argv[0] under which the test binary is a small daemon that
// starts one command and waits; its standard output is the command's.
const daemonName = "sandbox-test-daemon"

func daemonMain(mode string) {
	l, err := NewLauncher(Options{AllowFullAccess: true})
	if err != nil {
		unix.Exit(2)
	}
	m, err := ParseMode(mode)
	if err != nil {
		unix.Exit(2)
	}
	p, err := l.Start(noContext, Policy{Mode: m}, Command{Argv: []string{"sh", "-c", "trap '' TERM; (setsid sleep 1000 &) ; echo up; exec sleep 1000"}, Dir: "/", Stdout: os.Stdout})
	if err != nil {
		os.Stdout.WriteString(err.Error())
		unix.Exit(2)
	}
	_, _ = p.Wait()
	unix.Exit(0)
}

// startPiped starts a command and returns what it prints, line by line. The pipe
// ends when nothing of the command lives.
func startPiped(t *testing.T, l *Launcher, p Policy, script string) (*Process, *bufio.Reader) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	proc, err := l.Start(t.Context(), p, Command{Argv: []string{"sh", "-c", script}, Stdout: w, Dir: "/"})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return proc, bufio.NewReader(r)
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	s, err := r.ReadString('\n')
	if err != nil {
		t.Fatalf("reading a line: %q, %v", s, err)
	}
	return strings.TrimSpace(s)
}

const stubbornTree = `trap '' TERM INT HUP QUIT
for i in 1 2 3; do (trap '' TERM; setsid sh -c 'trap "" TERM; (sleep 1000 &) ; sleep 1000' &); done
echo up; `

var bothModes = []Policy{{Mode: ReadOnly}, {Mode: FullAccess}}

func TestNothingOutlivesTheCommand(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		proc, r := startPiped(t, l, p, stubbornTree+"exit 5")
		readLine(t, r)
		res, err := proc.Wait()
		if err != nil || res.ExitCode != 5 || res.Strays < 1 {
			t.Errorf("%v: %+v, %v; want code 5 and strays", p.Mode, res, err)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			t.Errorf("%v: %q, %v", p.Mode, rest, err)
		}
		proc, _ = startPiped(t, l, p, "true; true & wait")
		if res, err := proc.Wait(); err != nil || res.Strays != 0 {
			t.Errorf("%v: %+v, %v; want no strays", p.Mode, res, err)
		}
	}
}

func TestKillEndsTheWholeTree(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		proc, r := startPiped(t, l, p, stubbornTree+"sleep 1000")
		readLine(t, r)
		if err := proc.Kill(); err != nil {
			t.Errorf("%v: kill: %v", p.Mode, err)
		}
		res, err := proc.Wait()
		if err != nil || res.Signal != syscall.SIGKILL || res.ExitCode != -1 {
			t.Errorf("%v: %+v, %v; want SIGKILL", p.Mode, res, err)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Error(err)
		}
		<-proc.gone
		for name, err := range map[string]error{"Kill": proc.Kill(), "Signal": proc.Signal(syscall.SIGTERM), "SignalAll": proc.SignalAll(syscall.SIGTERM)} {
			if !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("%v: %s after the end: %v, want os.ErrProcessDone", p.Mode, name, err)
			}
		}
	}
}

func TestCloseEndsWhatStillRuns(t *testing.T) {
	for _, p := range bothModes {
		l := newLauncher(t, Options{AllowFullAccess: true})
		proc, r := startPiped(t, l, p, stubbornTree+"sleep 1000")
		readLine(t, r)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if res, err := proc.Wait(); err != nil || res.Signal != syscall.SIGKILL {
			t.Errorf("%v: %+v, %v", p.Mode, res, err)
		}
		if _, err := io.ReadAll(r); err != nil {
			t.Error(err)
		}
	}
}

func TestSignalsReachGroupOrEverything(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		// a process in a session of its own hears SignalAll only
		proc, r := startPiped(t, l, p, `trap 'echo main' USR1
setsid sh -c 'trap "echo other" USR1; echo ready; while :; do sleep 0.01; done' &
while :; do sleep 0.01; done`)
		if s := readLine(t, r); s != "ready" {
			t.Fatal(s)
		}
		if err := proc.Signal(syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
		if s := readLine(t, r); s != "main" {
			t.Errorf("%v: Signal was heard by %s first", p.Mode, s)
		}
		if err := proc.SignalAll(syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
		if a, b := readLine(t, r), readLine(t, r); a == b {
			t.Errorf("%v: SignalAll was heard by %s and %s", p.Mode, a, b)
		}
		if err := proc.Signal(0); err == nil {
			t.Error("signal 0 was sent")
		}
		_ = proc.Kill()
		_, _ = proc.Wait()
	}
}

func TestKilledInitIsReportedAsLost(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startPiped(t, l, Policy{Mode: ReadOnly}, "echo up; sleep 1000")
	readLine(t, r)
	if err := unix.Kill(proc.PID(), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	res, err := proc.Wait()
	if !errors.Is(err, ErrInitLost) || res.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v; want ErrInitLost and SIGKILL", res, err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
}

func TestDeadSpawnerIsReplaced(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startPiped(t, l, Policy{Mode: ReadOnly}, "echo up; read x; exit 6")
	readLine(t, r)
	if err := unix.Kill(l.spawner.pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if out := runShell(t, l, Policy{Mode: ReadOnly}, "echo again"); out.stdout != "again\n" {
		t.Errorf("after the spawner died: %+v", out)
	}
	if res, err := proc.Wait(); err != nil || res.ExitCode != 6 {
		t.Errorf("a command of the dead spawner: %+v, %v", res, err)
	}
}

func TestNothingOutlivesTheDaemon(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"read-only", "full-access"} {
		cmd := exec.Command(exe)
		cmd.Args = []string{daemonName, mode}
		pipe, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r := bufio.NewReader(pipe)
		if s := readLine(t, r); s != "up" {
			t.Errorf("%s: %s", mode, s)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		// the pipe ends when the last process that holds it is dead
		if _, err := io.ReadAll(r); err != nil {
			t.Errorf("%s: %v", mode, err)
		}
		_ = cmd.Wait()
	}
}

// openFiles and children are what this process holds.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

func children(t *testing.T) int {
	t.Helper()
	n := 0
	for _, pid := range allPIDs() {
		if st, ok := procStat(pid); ok && st.parent == os.Getpid() {
			n++
		}
	}
	return n
}

func TestManyStartsLeakNothing(t *testing.T) {
	ws := workspace(t)
	warm := newLauncher(t, Options{})
	runShell(t, warm, Policy{Mode: ReadOnly}, "true") // what the runtime opens once
	warm.Close()
	files, procs := openFiles(t), children(t)
	l, err := NewLauncher(Options{AllowFullAccess: true})
	if err != nil {
		t.Fatal(err)
	}
	policies := []Policy{{Mode: WorkspaceWrite, Roots: []string{ws}}, {Mode: ReadOnly}, {Mode: FullAccess}}
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			want := strconv.Itoa(i)
			out, err := runCommand(t, l, policies[i%3], Command{Argv: []string{"sh", "-c", "echo " + want + "; exit " + want}})
			if err != nil || out.stdout != want+"\n" || out.ExitCode != i {
				t.Errorf("start %d: %+v, %v", i, out, err)
			}
		})
	}
	wg.Wait()
	for i := range 60 {
		c := Command{Argv: []string{"true"}}
		switch i % 4 {
		case 1:
			c.Argv = []string{"no-such-program"}
		case 2:
			c.Dir = "/no/such/folder"
		case 3:
			c.TTY = &WinSize{24, 80}
		}
		p, err := l.Start(t.Context(), policies[i%3], c)
		if err == nil {
			_, err = p.Wait()
			if p.TTY() != nil {
				p.TTY().Close()
			}
		}
		if (err != nil) != (i%4 == 1 || i%4 == 2) {
			t.Errorf("start %d: %v", i, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d descriptors are open, %d were before", n, files)
	}
	if n := children(t); n > procs {
		t.Errorf("%d children are left, %d were before", n, procs)
	}
	if left, _ := os.ReadDir(ws); len(left) != 0 {
		t.Errorf("left in the workspace: %v", left)
	}
}
