package executortest_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func start(t *testing.T, r *executortest.Runner, s executor.Spec) executor.Running {
	t.Helper()
	run, err := r.Run(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return run
}

func TestCommandsDoWhatTheirNamesSay(t *testing.T) {
	for _, c := range []struct {
		name   string
		argv   []string
		stdin  string
		stdout string
		stderr string
		end    executor.Ended
	}{
		{"echo", []string{"echo", "a", " b"}, "", "a  b\n", "", executor.Ended{}},
		{"complain", []string{"complain", "a"}, "", "", "a\n", executor.Ended{}},
		{"exit", []string{"exit", "7"}, "", "", "", executor.Ended{Code: 7}},
		{"die", []string{"die", "SEGV"}, "", "", "", executor.Ended{Signal: "SEGV"}},
		{"cat", []string{"cat"}, "text", "text", "", executor.Ended{}},
		{"sum", []string{"sum"}, "text", executortest.Sum([]byte("text")), "", executor.Ended{}},
		{"flood", []string{"flood", "10001", "77"}, "", string(executortest.Pattern(10001)), "", executor.Ended{}},
		{"exchange", []string{"exchange", "99"}, "x", string(executortest.Pattern(99)), executortest.Sum([]byte("x")), executor.Ended{}},
		{"sleep", []string{"sleep", "1h", "late"}, "", "late\n", "", executor.Ended{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var r executortest.Runner
				run := start(t, &r, executor.Spec{Argv: c.argv, Stdin: true})
				if _, err := io.WriteString(run.Stdin(), c.stdin); err != nil && c.stdin != "" {
					t.Fatal(err)
				}
				run.Stdin().Close()
				stderr := make(chan string)
				go func() {
					b, _ := io.ReadAll(run.Outputs()[1].Pipe)
					stderr <- string(b)
				}()
				stdout, err := io.ReadAll(run.Outputs()[0].Pipe)
				if err != nil || string(stdout) != c.stdout {
					t.Errorf("stdout %q, %v, want %q", stdout, err, c.stdout)
				}
				if got := <-stderr; got != c.stderr {
					t.Errorf("stderr %q, want %q", got, c.stderr)
				}
				if end := run.Wait(); end != c.end {
					t.Errorf("ended %+v, want %+v", end, c.end)
				}
				if r.Starts() != 1 || r.Running() != 0 {
					t.Errorf("%d started, %d running, want 1 and 0", r.Starts(), r.Running())
				}
			})
		})
	}
}

func TestPatternIsTheSameFromEveryPlace(t *testing.T) {
	all := executortest.Pattern(5000)
	for at := range 100 {
		if !bytes.Equal(executortest.PatternAt(at, 3000), all[at:at+3000]) {
			t.Fatalf("pattern from %d differs", at)
		}
	}
}

func TestUnknownCommandIsNotStarted(t *testing.T) {
	var r executortest.Runner
	for name, want := range map[string]wire.Code{"no-such-command": wire.CodeNotFoundCmd, "noexec": wire.CodeNotExec} {
		if _, err := r.Run(t.Context(), executor.Spec{Argv: []string{name}}); wire.CodeOf(err) != want {
			t.Errorf("Run(%s): %v, want code %v", name, err, want)
		}
	}
	if n := r.Starts(); n != 0 {
		t.Errorf("%d processes were started, want none", n)
	}
}

func TestSignalEndsAProcessButNotAStubbornOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r executortest.Runner
		soft := start(t, &r, executor.Spec{Argv: []string{"sleep", "1h"}})
		soft.Signal("INT")
		if end := soft.Wait(); end.Signal != "INT" {
			t.Errorf("ended %+v, want signal INT", end)
		}
		if soft.Signal("INT") == nil {
			t.Error("a process that has ended took a signal")
		}
		hard := start(t, &r, executor.Spec{Argv: []string{"stubborn", "1h"}})
		synctest.Wait()
		hard.SignalAll("TERM")
		synctest.Wait()
		if r.Running() != 1 {
			t.Fatal("TERM ended a stubborn process")
		}
		hard.Kill()
		if end := hard.Wait(); end.Signal != "KILL" {
			t.Errorf("ended %+v, want signal KILL", end)
		}
		if b, _ := io.ReadAll(hard.Outputs()[0].Pipe); string(b) != "ready\nTERM\n" {
			t.Errorf("output %q, want what it wrote before the end", b)
		}
	})
}

func TestPipeHasADeadlineOnTheTestsClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r executortest.Runner
		run := start(t, &r, executor.Spec{Argv: []string{"hold", "1m", "word"}})
		run.Wait()
		out := run.Outputs()[0].Pipe
		b := make([]byte, 10)
		if n, err := out.Read(b); string(b[:n]) != "word\n" {
			t.Fatalf("Read: %q, %v", b[:n], err)
		}
		begin := time.Now()
		out.SetReadDeadline(begin.Add(2 * time.Second))
		if _, err := out.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(begin) != 2*time.Second {
			t.Fatalf("Read: %v after %v, want the deadline after 2s", err, time.Since(begin))
		}
		out.SetReadDeadline(time.Time{})
		if _, err := out.Read(b); err != io.EOF || time.Since(begin) != time.Minute {
			t.Fatalf("Read: %v after %v, want the end after 1m", err, time.Since(begin))
		}
	})
}

func TestOutputWithoutAReaderEndsTheWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r executortest.Runner
		run := start(t, &r, executor.Spec{Argv: []string{"flood", "1000000"}})
		synctest.Wait()
		if r.Running() != 1 {
			t.Fatal("1 MB fitted into a pipe")
		}
		run.Outputs()[0].Pipe.Close()
		if end := run.Wait(); end.Code != 1 {
			t.Errorf("ended %+v, want code 1", end)
		}
	})
}

func TestHandleAddsACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r executortest.Runner
		r.Handle("size", func(p *executortest.Process) int { return int(p.Size().Rows) })
		if end := start(t, &r, executor.Spec{Argv: []string{"size"}, TTY: &wire.WinSize{Rows: 24}}).Wait(); end.Code != 24 {
			t.Errorf("ended %+v, want code 24", end)
		}
	})
}
