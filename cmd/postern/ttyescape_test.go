//go:build linux

package main

import (
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// run runs the command line without a terminal, which must work, and is its stdout.
func (d devServer) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := postern(t, args...)
	cmd.Env = d.environ
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("postern %v: %v", args, err)
	}
	return string(out)
}

var smallScreen = pty.Winsize{Rows: 24, Cols: 80}

const greeter = `echo up; while read line; do echo "got $line"; [ "$line" = end ] && exit 7; done`

func TestEscapeLeavesTheExecAndAttachComesBack(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	const id = "00e5ca9e000000000000000000000001"
	first := d.onTerminal(t, smallScreen, "exec", "-it", "--id", id, "dev", "--", "sh", "-c", greeter)
	first.want("up\r\n")
	first.typeKeys("one\r~~x\r")
	first.want("got one\r\n")
	first.want("got ~x\r\n")
	first.typeKeys("~?")
	first.want("~.  leave; the command goes on\r\n")
	first.typeKeys("~.")
	if code := first.code(); code != 0 {
		t.Errorf("leaving: exit code %d, want 0", code)
	}
	first.want("\r\npostern: left dev; exec " + id + " goes on for 2m0s: postern attach -i dev " + id + "\r\n")
	if text := first.shown(); strings.Contains(text, "got ~?") || strings.Contains(text, "got ~.") {
		t.Errorf("an escape reached the command: %q", text)
	}

	second := d.onTerminal(t, pty.Winsize{Rows: 33, Cols: 99}, "attach", "-i", "dev", id[:8])
	second.want("got one\r\n")
	second.typeKeys("two\r")
	second.want("got two\r\n")
	second.typeKeys("end\r")
	second.want("got end\r\n")
	if code := second.code(); code != 7 {
		t.Errorf("after attach: exit code %d, want the command's 7", code)
	}
}

func TestAttachGivesTheCommandTheSizeOfThisTerminal(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	id := strings.TrimSpace(d.run(t, "exec", "-dit", "dev", "--", "sh", "-c", `until [ "$(stty size)" = "33 99" ]; do sleep 0.05; done; echo right; read line`))
	s := d.onTerminal(t, pty.Winsize{Rows: 33, Cols: 99}, "attach", "-i", "dev", id)
	s.want("right\r\n")
	s.typeKeys("\r")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
}

func TestEscapeWorksWhileTheCommandReadsNothing(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	s := d.onTerminal(t, smallScreen, "exec", "-it", "dev", "--", "sh", "-c", "stty raw -echo; echo up; kill -STOP $$")
	s.want("up\n")
	// More than all queues on the way hold.
	line := strings.Repeat("x", 1023) + "\r"
	s.typeKeys(strings.Repeat(line, 1600))
	s.typeKeys("~.")
	if code := s.code(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	s.want("postern: left dev")
}

func TestEscapesAreForTerminalsOnly(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	cmd := postern(t, "exec", "-i", "dev", "--", "cat")
	cmd.Env = d.environ
	cmd.Stdin = strings.NewReader("~.\n~?\n~~\n")
	if out, err := cmd.Output(); err != nil || string(out) != "~.\n~?\n~~\n" {
		t.Errorf("through a pipe came %q, %v; want all as it was", out, err)
	}
	for _, test := range []struct{ escape, keys, want string }{
		{"none", "~.\rend\r", "got ~.\r\n"},
		{"%", "~.\r%%\rend\r", "got %\r\n"},
	} {
		s := d.onTerminal(t, smallScreen, "exec", "-it", "--escape", test.escape, "dev", "--", "sh", "-c", greeter)
		s.want("up\r\n")
		s.typeKeys(test.keys)
		s.want("got ~.\r\n")
		s.want(test.want)
		if code := s.code(); code != 7 {
			t.Errorf("--escape %s: exit code %d, want the command's 7", test.escape, code)
		}
	}
}

func TestTerminalThatIsGoneLeavesTheCommandRunning(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	id := strings.TrimSpace(d.run(t, "exec", "-dit", "dev", "--", "sh", "-c", greeter))
	gone := d.onTerminal(t, smallScreen, "attach", "-i", "--escape", "none", "dev", id)
	gone.want("up\r\n")
	if err := gone.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if code := gone.code(); code != 0 {
		t.Errorf("without its terminal: exit code %d, want 0", code)
	}
	back := d.onTerminal(t, smallScreen, "attach", "-i", "dev", id)
	back.want("up\r\n")
	back.typeKeys("end\r")
	if code := back.code(); code != 7 {
		t.Errorf("after coming back: exit code %d, want the command's 7", code)
	}
}

func TestTypingForACommandWithoutInputIsSaid(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	id := strings.TrimSpace(d.run(t, "exec", "-dt", "dev", "--", "sh", "-c", "echo up; exec sleep 1000.83"))
	s := d.onTerminal(t, smallScreen, "attach", "-i", "dev", id)
	s.want("up\r\n")
	s.typeKeys("x")
	s.want("\r\npostern: the command takes no input: it was started without -i, or has closed it\r\n")
	s.typeKeys("\r~.")
	if code := s.code(); code != 0 {
		t.Errorf("leaving: exit code %d, want 0", code)
	}
	s.want("postern: left dev; exec " + id + " goes on: postern attach -i dev " + id)
	d.run(t, "kill", "dev", id)
}

func TestWatchingATerminalLeavesThisOneAlone(t *testing.T) {
	t.Parallel()
	d := startDev(t)
	id := strings.TrimSpace(d.run(t, "exec", "-d", "-t", "dev", "--", "sh", "-c", "echo up; exec sleep 1000.82"))
	s := d.onTerminal(t, smallScreen, "attach", "dev", id)
	s.want("up\r")
	s.typeKeys("\x03")
	if code := s.code(); code != 130 {
		t.Errorf("Ctrl-C while watching: exit code %d, want 130", code)
	}
	d.run(t, "kill", "dev", id)
	wait := postern(t, "wait", "dev", id)
	wait.Env = d.environ
	if err, ok := wait.Run().(*exec.ExitError); !ok || err.ExitCode() != 143 {
		t.Errorf("the command that was watched: %v, want 143", err)
	}
}
