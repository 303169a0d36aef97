package sandbox

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestOutputFloodDoesNotReachTheInit(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startPiped(t, l, Policy{Mode: ReadOnly}, "yes flood")
	for range 100_000 {
		if s := readLine(t, r); s != "flood" {
			t.Fatalf("read %q", s)
		}
	}
	// nobody reads now: the command stands still, and is still heard and obeyed
	if err := proc.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if res, err := proc.Wait(); err != nil || res.Signal != unix.SIGTERM {
		t.Errorf("%+v, %v; want SIGTERM", res, err)
	}
}

func TestStoppedCommandIsStillKilled(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		proc, r := startPiped(t, l, p, `sh -c 'trap "" TERM; kill -STOP $$; sleep 1000' & echo $$; kill -STOP $$; echo went on`)
		readLine(t, r)
		if err := proc.Kill(); err != nil {
			t.Error(err)
		}
		if res, err := proc.Wait(); err != nil || res.Signal != unix.SIGKILL {
			t.Errorf("%v: %+v, %v; want SIGKILL", p.Mode, res, err)
		}
		if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
			t.Errorf("%v: printed %q after it had stopped, %v", p.Mode, rest, err)
		}
	}
}

func TestSandboxesCannotReachEachOther(t *testing.T) {
	l := newLauncher(t, Options{})
	p := Policy{Mode: ReadOnly}
	victim, r := startPiped(t, l, p, "echo secret > /tmp/file; echo secret > ~/file; echo secret > /dev/shm/file; sh -c 'sleep 1000; :' victim-of-test & echo up; wait")
	readLine(t, r)
	defer func() { _ = victim.Kill(); _, _ = victim.Wait() }()
	for _, c := range []struct{ name, script string }{
		{"files", "cat /tmp/file ~/file /dev/shm/file 2>/dev/null"},
		{"processes", "grep -l [v]ictim-of-test /proc/[0-9]*/cmdline 2>/dev/null"},
		{"signals", "kill -9 -1; test -d /proc/" + strconv.Itoa(victim.PID()) + " && echo seen; true"},
	} {
		if out := runShell(t, l, p, c.script); out.stdout != "" {
			t.Errorf("%s of another sandbox: %q", c.name, out.stdout)
		}
	}
	listener, lines := startListener(t, l, p)
	defer func() { _ = listener.Kill(); _, _ = listener.Wait() }()
	port := strings.TrimPrefix(readLine(t, lines), "port ")
	if got := runProbe(t, l, p, "dial", "tcp", "127.0.0.1:"+port); got != "ECONNREFUSED" {
		t.Errorf("dial to another sandbox's loopback: %s", got)
	}
	if got := runProbe(t, l, p, "dial", "unix", "@sandbox-test-victim"); got != "ECONNREFUSED" && got != "EPERM" {
		t.Errorf("dial to another sandbox's abstract socket: %s", got)
	}
	select {
	case <-victim.Done():
		t.Error("the other sandbox has ended")
	default:
	}
}

// startListener starts a server on a TCP port and an abstract socket of a sandbox.
func startListener(t *testing.T, l *Launcher, p Policy) (*Process, *bufio.Reader) {
	t.Helper()
	root, file := probe(t)
	p.Roots = append(p.Roots, root)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	proc, err := l.Start(t.Context(), p, Command{Argv: []string{file, "serve", "@sandbox-test-victim"}, Arg0: probeName, Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return proc, bufio.NewReader(r)
}

func TestResizeFloodLeavesTheLastSize(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startTerminal(t, l, Policy{Mode: ReadOnly}, "echo up; read x; stty size; exit 3")
	defer proc.TTY().Close()
	readLine(t, r)
	rc, err := proc.TTY().SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	resize := func(rows, cols uint16) {
		cerr := rc.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols})
		})
		if err = errors.Join(err, cerr); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 20_000 {
		resize(uint16(i%200+1), uint16(i%300+1))
	}
	resize(33, 99)
	if _, err := io.WriteString(proc.TTY(), "go\n"); err != nil {
		t.Fatal(err)
	}
	if s := readLine(t, r); s != "go" { // the echo
		t.Errorf("echo %q", s)
	}
	if s := readLine(t, r); s != "33 99" {
		t.Errorf("size after the flood %q, want 33 99", s)
	}
	if res, err := proc.Wait(); err != nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

// poolDaemonName is the argv[0] of a daemon with a running command and a ready
// sandbox, all of which hold its standard output.
const poolDaemonName = "sandbox-test-pool-daemon"

func poolDaemonMain(dir string) {
	l, err := NewLauncher(Options{})
	if err != nil {
		unix.Exit(2)
	}
	policy := Policy{Mode: WorkspaceWrite, Roots: []string{dir}}
	p, err := l.Start(noContext, policy, Command{Argv: []string{"sh", "-c", "trap '' TERM HUP; echo up; sleep 1000"}, Stdout: os.Stdout})
	if err != nil {
		unix.Exit(2)
	}
	for l.Stats().Ready == 0 {
		_, _ = unix.Poll(nil, 1)
	}
	l.mu.Lock()
	for other := range l.running {
		if other != p {
			_, _ = os.Stdout.WriteString(strconv.Itoa(other.pid) + "\n")
		}
	}
	l.mu.Unlock()
	_, _ = p.Wait()
	unix.Exit(0)
}

func TestReadySandboxesDieWithTheDaemon(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ws := workspace(t)
	cmd := exec.Command(exe)
	cmd.Args = []string{poolDaemonName, ws}
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	r := bufio.NewReader(pipe)
	lines := []string{readLine(t, r), readLine(t, r)} // of the daemon and of its command, whichever is first
	slices.Sort(lines)
	pid, err := strconv.Atoi(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	ready, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ready)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(r); err != nil { // until the command is dead
		t.Error(err)
	}
	_ = cmd.Wait()
	awaitDeath(t, ready)
	for _, name := range defaultProtected { // documented: empty ones may stay behind
		if err := os.Remove(ws + "/" + name); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what stays behind must be empty: %v", err)
		}
	}
}

func awaitDeath(t *testing.T, pidfd int) {
	t.Helper()
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, int(time.Minute.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if n != 1 || err != nil {
			t.Fatalf("the process still lives after a minute, %v", err)
		}
		return
	}
}

func TestReadySandboxesOutliveTheSpawner(t *testing.T) {
	l := newLauncher(t, Options{})
	p := Policy{Mode: ReadOnly}
	prepare(t, l, p)
	l.spawnMu.Lock()
	err := unix.Kill(l.spawner.pid, unix.SIGKILL)
	l.spawnMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if warm, _ := starts(l, func() {
		if out := runShell(t, l, p, "echo on; exit 4"); out.stdout != "on\n" || out.ExitCode != 4 {
			t.Errorf("%+v", out)
		}
	}); warm != 1 {
		t.Error("the ready sandbox was not used")
	}
	prepare(t, l, p) // with a new spawner
}

// TestKillEndsHundredsOfStubbornProcesses logs how long it took.
func TestKillEndsHundredsOfStubbornProcesses(t *testing.T) {
	const many = 500
	l := newLauncher(t, Options{})
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	script := "trap '' $(seq 1 8) $(seq 10 16) 18 $(seq 20 31); i=0; " + // all but KILL, CHLD and STOP
		"while [ $i -lt " + strconv.Itoa(many) + " ]; do (setsid sleep 1000 &); i=$((i+1)); done; echo up; sleep 1000"
	proc, err := l.Start(t.Context(), Policy{Mode: ReadOnly}, Command{Argv: []string{"/bin/sh", "-c", script}, Stdout: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(r)
	readLine(t, lines)
	begin := time.Now()
	if err := proc.Kill(); err != nil {
		t.Fatal(err)
	}
	res, err := proc.Wait()
	took := time.Since(begin)
	if err != nil || res.Signal != unix.SIGKILL {
		t.Errorf("%+v, %v", res, err)
	}
	fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, 0); n != 1 || err != nil || fds[0].Revents != unix.POLLHUP {
		t.Errorf("after Wait somebody still holds the pipe: %d %#x, %v", n, fds[0].Revents, err)
	}
	t.Logf("%d processes were gone %v after Kill", many, took)
}
