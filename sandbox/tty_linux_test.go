package sandbox

import (
	"bufio"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func startTerminal(t *testing.T, l *Launcher, p Policy, script string) (*Process, *bufio.Reader) {
	t.Helper()
	proc, err := l.Start(t.Context(), p, Command{Argv: []string{"sh", "-c", script}, Env: []string{"TERM=dumb"}, TTY: &WinSize{33, 97}, Dir: "/"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { proc.TTY().Close() })
	return proc, bufio.NewReader(proc.TTY())
}

func TestTerminalHasANameASizeAndASession(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		proc, r := startTerminal(t, l, p, `tty; stty size; ps -o tty= -p $$ 2>/dev/null || echo none; echo over > /dev/tty; read x; stty size; echo got $x`)
		name := readLine(t, r)
		if !strings.HasPrefix(name, "/dev/pts/") || p.Mode == ReadOnly && name != "/dev/pts/0" {
			t.Errorf("%v: terminal is %q", p.Mode, name)
		}
		if s := readLine(t, r); s != "33 97" {
			t.Errorf("%v: size %q", p.Mode, s)
		}
		readLine(t, r) // what ps says depends on ps
		if s := readLine(t, r); s != "over" {
			t.Errorf("%v: /dev/tty: %q", p.Mode, s)
		}
		rc, err := proc.TTY().SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := rc.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 10, Col: 20})
		}); err != nil {
			t.Error(err)
		}
		if _, err := proc.TTY().WriteString("line\n"); err != nil {
			t.Error(err)
		}
		if s := readLine(t, r); s != "line" { // the echo
			t.Errorf("%v: %q", p.Mode, s)
		}
		if a, b := readLine(t, r), readLine(t, r); a != "10 20" || b != "got line" {
			t.Errorf("%v: %q %q", p.Mode, a, b)
		}
		if res, err := proc.Wait(); err != nil || res.ExitCode != 0 {
			t.Errorf("%v: %+v, %v", p.Mode, res, err)
		}
	}
}

func TestSignalGoesToTheForegroundGroupOfTheTerminal(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range bothModes {
		// set -m gives the child a foreground group of its own
		proc, r := startTerminal(t, l, p, `trap 'echo shell' USR1; set -m; sh -c 'trap "echo child; exit 3" USR1; echo ready; while :; do sleep 0.01; done' 2>/dev/null; echo code $?`)
		if s := readLine(t, r); s != "ready" {
			t.Fatalf("%v: %q", p.Mode, s)
		}
		if err := proc.Signal(syscall.SIGUSR1); err != nil {
			t.Error(err)
		}
		if a, b := readLine(t, r), readLine(t, r); a != "child" || b != "code 3" {
			t.Errorf("%v: %q %q, want the child to hear it and not the shell", p.Mode, a, b)
		}
		if res, err := proc.Wait(); err != nil || res.ExitCode != 0 {
			t.Errorf("%v: %+v, %v", p.Mode, res, err)
		}
	}
}

func TestHangUpReachesTheSessionWhenTheMasterIsClosed(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startTerminal(t, l, Policy{Mode: ReadOnly}, "echo up; exec sleep 1000")
	readLine(t, r)
	proc.TTY().Close()
	if res, err := proc.Wait(); err != nil || res.Signal != syscall.SIGHUP {
		t.Errorf("%+v, %v; want SIGHUP", res, err)
	}
}
