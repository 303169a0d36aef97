package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func TestCmdRunGivesTheExactResult(t *testing.T) {
	for _, c := range []struct {
		name   string
		argv   []string
		stdin  string
		stdout string
		stderr string
		status *wire.ExitStatus // nil: success
	}{
		{"success", []string{"echo", "a", "b"}, "", "a b\n", "", nil},
		{"standard error", []string{"complain", "a"}, "", "", "a\n", nil},
		{"a code", []string{"exit", "7"}, "", "", "", &wire.ExitStatus{Code: 7, Cause: wire.CauseExited}},
		{"a signal", []string{"die", "SEGV"}, "", "", "", &wire.ExitStatus{Signal: "SEGV", Cause: wire.CauseSignalled}},
		{"input", []string{"cat"}, "what is read", "what is read", "", nil},
		{"input that is not read", []string{"exit", "0"}, strings.Repeat("x", 200_000), "", "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				var stdout, stderr bytes.Buffer
				cmd := Environment{Backend: w.remote}.Command(c.argv...)
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if c.stdin != "" {
					cmd.Stdin = strings.NewReader(c.stdin)
				}
				err := cmd.Run(t.Context())
				failed, _ := errors.AsType[*ExitError](err)
				switch {
				case c.status == nil && err != nil:
					t.Errorf("Run: %v", err)
				case c.status != nil && (failed == nil || !failed.Status.Equal(*c.status)):
					t.Errorf("Run: %v, want %v", err, *c.status)
				case c.status != nil && err.Error() != c.status.String():
					t.Errorf("the error reads %q, want %q", err, c.status)
				}
				if stdout.String() != c.stdout || stderr.String() != c.stderr {
					t.Errorf("output %q and %q, want %q and %q", stdout.String(), stderr.String(), c.stdout, c.stderr)
				}
			})
		})
	}
}

func TestCmdFeedsAllOfStdinAndItsEnd(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		input := executortest.Pattern(3_000_000)
		cmd := Environment{Backend: w.remote}.Command("sum")
		cmd.Stdin = bytes.NewReader(input)
		out, err := cmd.Output(t.Context())
		if err != nil || string(out) != executortest.Sum(input) {
			t.Errorf("Output: %q, %v, want the sum of the whole input", out, err)
		}
	})
}

func TestCmdWithoutStdinReadsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		if out := w.output("sum"); out != executortest.Sum(nil) {
			t.Errorf("output %q, want the sum of nothing", out)
		}
	})
}

func TestCmdThatCannotStartSaysWhy(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		for argv, code := range map[string]wire.Code{"no-such-command": wire.CodeNotFoundCmd, "noexec": wire.CodeNotExec, "": wire.CodeBadRequest} {
			err := Environment{Backend: w.remote}.Command(argv).Run(t.Context())
			wantCode(t, argv, err, code)
			if _, ran := errors.AsType[*ExitError](err); ran {
				t.Errorf("%q: %v, which says that it ran", argv, err)
			}
		}
	})
}

func TestCmdIsTerminatedWhenItsContextEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
		want time.Duration
	}{
		{"one that listens", []string{"sleep", "1h"}, time.Minute},
		{"one that does not", []string{"stubborn", "1h"}, time.Minute + wire.DefaultKillAfter},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				cmd := Environment{Backend: w.remote}.Command(c.argv...)
				err := cmd.Run(ctx)
				if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute {
					t.Errorf("Run: %v after %v, want the deadline", err, time.Since(began))
				}
				viewer, err := w.remote.Attach(t.Context(), cmd.Process().ID(), wire.AttachOptions{})
				if err != nil {
					t.Fatal(err)
				}
				status, err := viewer.Wait(t.Context())
				if err != nil || status.Cause != wire.CauseTerminated || time.Since(began) != c.want {
					t.Errorf("ended %+v, %v after %v, want terminated after %v", status, err, time.Since(began), c.want)
				}
			})
		})
	}
}

func TestCmdThatWasStartedWithAContextOutlivesIt(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := Environment{Backend: w.remote}.Command("sleep", "1m")
		if err := cmd.Start(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if status, err := cmd.Wait(t.Context()); err != nil || !status.Success() {
			t.Errorf("Wait: %+v, %v", status, err)
		}
	})
}

// breaking takes so many bytes and then none.
type breaking struct{ room int }

var errFull = errors.New("no space left")

func (b *breaking) Write(p []byte) (int, error) {
	if b.room -= len(p); b.room < 0 {
		return 0, errFull
	}
	return len(p), nil
}

func TestBrokenStdoutEndsTheCommandAsAPipeWould(t *testing.T) {
	for _, c := range []struct {
		name string
		run  executortest.Command
		want wire.ExitStatus
	}{
		{"it has the default action", nil, wire.ExitStatus{Signal: "PIPE", Cause: wire.CauseSignalled}},
		{"it ignores PIPE", func(p *executortest.Process) int {
			p.Ignore()
			p.Stdout.Write(make([]byte, 100))
			for s := range p.Signals {
				if s == "TERM" {
					return 9
				}
			}
			return 0
		}, wire.ExitStatus{Code: 9, Cause: wire.CauseTerminated}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				argv := []string{"flood", "100000000"}
				if c.run != nil {
					w.runner.Handle("tough", c.run)
					argv = []string{"tough"}
				}
				cmd := Environment{Backend: w.remote}.Command(argv...)
				cmd.Stdout = &breaking{room: 50}
				if err := cmd.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				status, err := cmd.Wait(t.Context())
				if !errors.Is(err, errFull) || !status.Equal(c.want) {
					t.Errorf("Wait: %+v, %v, want %+v and the error of the Write", status, err, c.want)
				}
			})
		})
	}
}

func TestCmdIsForOneUse(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		cmd := Environment{Backend: w.remote}.Command("echo")
		if _, err := cmd.Wait(t.Context()); err == nil {
			t.Error("Wait before Start succeeded")
		}
		if cmd.Process() != nil {
			t.Error("there is a process before Start")
		}
		if err := cmd.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Run(t.Context()); err == nil {
			t.Error("a second Run succeeded")
		}
		taken := Environment{Backend: w.remote}.Command("echo")
		taken.Stdout = io.Discard
		if _, err := taken.Output(t.Context()); err == nil {
			t.Error("Output with Stdout set succeeded")
		}
		if n := w.runner.Starts(); n != 1 {
			t.Errorf("%d commands ran, want 1", n)
		}
	})
}

func TestCmdWhoseLinkIsLostDoesNotKnowTheOutcome(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.impatient()
		var circuit wire.Stream
		w.set(func() {
			w.between = func(s wire.Stream) wire.Stream {
				circuit = s
				return s
			}
		})
		cmd := Environment{Backend: w.remote}.Command("sleep", "1h")
		if err := cmd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		circuit.Reset(wire.CodeUnknown)
		_, err := cmd.Wait(t.Context())
		wantLost(t, "Wait", err)
		if w.runner.Running() != 1 {
			t.Error("the lost link ended the command")
		}
	})
}

func TestCmdSaysThatOutputIsMissingAndKeepsTheStatus(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.double(saying(nil, out(1, "a"), gap(2, 4, 99), out(5, "e"), exit(6, 3)))
		cmd := Environment{Backend: w.remote}.Command("x")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		if err := cmd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, err := cmd.Wait(t.Context())
		wantCode(t, "Wait", err, wire.CodeUnknown)
		if status.Code != 3 || status.Cause != wire.CauseExited || !strings.Contains(err.Error(), "99 bytes") || stdout.String() != "ae" {
			t.Errorf("Wait: %+v, %v, output %q", status, err, stdout.String())
		}
	})
}

func TestCmdRunsOnTheLocalMachineAlike(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		out, err := Environment{Name: "here", Backend: w.local}.Command("echo", "x").Output(t.Context())
		if err != nil || string(out) != "x\n" {
			t.Errorf("Output: %q, %v", out, err)
		}
	})
}
