//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// devServer is `postern dev` beside a test.
type devServer struct {
	home, workspace string
	environ         []string
}

// startDev runs it in a folder of the test's, and ends it by TERM, which must give 0.
func startDev(t *testing.T, flags ...string) devServer {
	t.Helper()
	needSandbox(t)
	return startDevWithoutSandbox(t, flags...)
}

// startDevWithoutSandbox starts it also where it will refuse every command.
func startDevWithoutSandbox(t *testing.T, flags ...string) devServer {
	t.Helper()
	dir := t.TempDir()
	d := devServer{home: filepath.Join(dir, "client"), workspace: filepath.Join(dir, "workspace")}
	d.environ = append(os.Environ(), "POSTERN_HOME="+d.home, "GORACE="+raceOptions())
	cmd := postern(t, append([]string{"dev", "--state", dir}, flags...)...)
	cmd.Env = d.environ
	line := make(chan string, 1)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &firstLine{Writer: io.Discard, line: line}, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-line:
	case err := <-ended:
		t.Fatalf("postern dev: %v\n%s", err, log.String())
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its end shows whether it arrived
		if err := <-ended; err != nil {
			t.Errorf("postern dev on TERM: %v\n%s", err, log.String())
		}
	})
	return d
}

// postern is this program's command line, run by the test binary (see TestMain).
func postern(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return &exec.Cmd{Path: self, Args: append([]string{"postern"}, args...), Env: append(os.Environ(), "GORACE="+raceOptions())}
}

// screen is a terminal with postern on it, and what postern has written there.
type screen struct {
	t    *testing.T
	file *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when nothing more comes

	mu   sync.Mutex
	text bytes.Buffer
}

// onTerminal runs postern on a terminal of a size, as a person would.
func (d devServer) onTerminal(t *testing.T, size pty.Winsize, args ...string) *screen {
	t.Helper()
	s := &screen{t: t, cmd: postern(t, args...), done: make(chan struct{})}
	s.cmd.Env = append(d.environ, "TERM=vt100")
	var err error
	if s.file, err = pty.StartWithSize(s.cmd, &size); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		buf := make([]byte, 4096)
		for {
			n, err := s.file.Read(buf)
			s.mu.Lock()
			s.text.Write(buf[:n])
			s.mu.Unlock()
			if err != nil {
				return // EIO when the last one has closed the terminal
			}
		}
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill() // only what a failed test left
		<-s.done
		s.file.Close()
	})
	return s
}

func (s *screen) shown() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// want waits until the screen shows a text.
func (s *screen) want(text string) {
	s.t.Helper()
	if !eventually(func() bool { return strings.Contains(s.shown(), text) }) {
		s.t.Fatalf("the screen never shows %q; it has %q", text, s.shown())
	}
}

func (s *screen) typeKeys(keys string) {
	s.t.Helper()
	if _, err := s.file.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// code waits for the end, and is the exit code.
func (s *screen) code() int {
	s.t.Helper()
	err := s.cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return 0
}

func TestTerminalHasTheSizeOfTheCallersAndFollowsIt(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	s := d.onTerminal(t, pty.Winsize{Rows: 41, Cols: 123}, "exec", "-it", "dev", "--",
		"sh", "-c", `echo "TERM is $TERM"; stty size; trap 'stty size; exit 0' WINCH; echo up; while :; do sleep 0.05; done`)
	s.want("TERM is vt100\r\n41 123\r\nup\r\n")
	if err := pty.Setsize(s.file, &pty.Winsize{Rows: 17, Cols: 55}); err != nil {
		t.Fatal(err)
	}
	s.want("17 55\r\n")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestControlCOnATerminalReachesTheCommandAsAKey(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	s := d.onTerminal(t, pty.Winsize{Rows: 24, Cols: 80}, "exec", "-it", "dev", "--",
		"sh", "-c", `trap 'echo interrupted; exit 9' INT; echo up; while :; do sleep 0.05; done`)
	s.want("up\r\n")
	s.typeKeys("\x03")
	s.want("interrupted\r\n")
	if code := s.code(); code != 9 {
		t.Errorf("exit code %d, want 9", code)
	}
	plain := d.onTerminal(t, pty.Winsize{Rows: 24, Cols: 80}, "exec", "-it", "dev", "--", "sh", "-c", "echo up; exec sleep 1000.81")
	plain.want("up\r\n")
	plain.typeKeys("\x03")
	if code := plain.code(); code != 130 {
		t.Errorf("a command that does nothing about Ctrl-C: exit code %d, want 130", code)
	}
}

func TestTypedLinesAreEchoedOnceAndEndOfFileArrives(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	s := d.onTerminal(t, pty.Winsize{Rows: 24, Cols: 80}, "exec", "-it", "dev", "--", "sh", "-c", "echo up; cat; echo end")
	s.want("up\r\n")
	s.typeKeys("typed\r")
	s.want("typed\r\ntyped\r\n")
	s.typeKeys("\x04")
	s.want("end\r\n")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if got := strings.Count(s.shown(), "typed"); got != 2 {
		t.Errorf("the word is on the screen %d times, want 2: the echo and cat's: %q", got, s.shown())
	}
}

func TestTerminalIsAsBeforeWhenTheCommandHasEnded(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	// A shell on the terminal compares its settings before and after.
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "postern")
	if err := os.Symlink(self, link); err != nil {
		t.Fatal(err)
	}
	shell := exec.Command("sh", "-c",
		`before=$(stty -g); "$0" exec -it dev -- sh -c "kill -KILL \$\$"; echo "code $?"; [ "$before" = "$(stty -g)" ] && echo same`, link)
	shell.Env = d.environ
	out, err := pty.Start(shell)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	var text bytes.Buffer
	_, _ = text.ReadFrom(out) // ends with EIO
	if err := shell.Wait(); err != nil || !strings.Contains(text.String(), "code 137\r\nsame\r\n") {
		t.Errorf("the shell ended with %v after %q, want code 137 and the same terminal settings", err, text.String())
	}
}

func TestTerminalIsGivenWithoutOneHere(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	cmd := postern(t, "exec", "-t", "dev", "--", "sh", "-c", "tty && stty size")
	cmd.Env = d.environ
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), "\r\n24 80\r\n") || !strings.HasPrefix(string(out), "/dev/pts/") {
		t.Errorf("-t without a terminal gave %q, %v; want a terminal of 24 rows and 80 columns", out, err)
	}
	cmd = postern(t, "exec", "dev", "--", "tty")
	cmd.Env = d.environ
	if out, err := cmd.Output(); err == nil || string(out) != "not a tty\n" {
		t.Errorf("without -t the command has a terminal: %q, %v", out, err)
	}
}
