package executor_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func TestDetachedCommandEndsWhenItsGraceIsOver(t *testing.T) {
	for _, c := range []struct {
		name       string
		ask, bound time.Duration
		want       time.Duration
	}{
		{"by default", 0, 0, wire.DefaultGrace},
		{"as asked for", 7 * time.Minute, 0, 7 * time.Minute},
		{"no longer than the executor allows", time.Hour, 3 * time.Minute, 3 * time.Minute},
		{"at once", -1, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{MaxGrace: c.bound}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				p := command("sleep", "24h")
				p.Grace = c.ask
				h := begin(t, b, p)
				if h.Info().Grace != c.want {
					t.Errorf("the grace is said to be %v, want %v", h.Info().Grace, c.want)
				}
				viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Hour) // attached: nothing runs out
				h.Close()
				got := await(t, viewer)
				if got.after != c.want || got.exit.Cause != wire.CauseTerminated || got.exit.Signal != "TERM" {
					t.Errorf("ended %+v after %v, want terminated after %v", got.exit, got.after, c.want)
				}
			})
		})
	}
}

func TestAttachStopsTheGraceAndDetachBeginsItAnew(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("sleep", "24h")
		begin(t, b, p).Close()
		<-time.After(wire.DefaultGrace - time.Second)
		h, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(wire.DefaultGrace)
		viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
		if got := await(t, viewer); got.after != wire.DefaultGrace {
			t.Errorf("ended after %v, want %v", got.after, wire.DefaultGrace)
		}
	})
}

func TestDetachedCommandThatIsBlockedOnOutputStillEnds(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		r.Handle("shouts", func(p *executortest.Process) int {
			p.Ignore() // it would like to say goodbye first, but its output is full
			for p.Context().Err() == nil {
				if _, err := p.Stdout.Write(make([]byte, wire.MaxChunk)); err != nil {
					return 1
				}
				select {
				case <-p.Signals:
					return 3
				default:
				}
			}
			return 1
		})
		p := command("shouts")
		h := begin(t, b, p)
		viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{}) // who holds nobody up, and helps nobody
		if err != nil {
			t.Fatal(err)
		}
		h.Close()
		began := time.Now()
		exit, err := viewer.Wait(t.Context())
		if err != nil || exit.Code != 3 || exit.Cause != wire.CauseTerminated || time.Since(began) != wire.DefaultGrace {
			t.Errorf("ended %+v, %v after %v, want with its own code 3, terminated after %v", exit, err, time.Since(began), wire.DefaultGrace)
		}
	})
}

func TestTimeLimitEndsTheCommandOnTheSecond(t *testing.T) {
	for _, c := range []struct {
		name   string
		argv   []string
		kill   time.Duration
		signal wire.Signal
		want   time.Duration
	}{
		{"by TERM", []string{"sleep", "24h"}, 0, "TERM", time.Minute},
		{"by KILL", []string{"stubborn", "24h"}, 0, "KILL", time.Minute + wire.DefaultKillAfter},
		{"by KILL after the time asked for", []string{"stubborn", "24h"}, 30 * time.Second, "KILL", time.Minute + 30*time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				p := command(c.argv...)
				p.Timeout, p.KillAfter = time.Minute, c.kill
				got := await(t, begin(t, b, p))
				if got.after != c.want || got.exit.Cause != wire.CauseTimedOut || got.exit.Signal != c.signal {
					t.Errorf("ended %+v after %v, want timed out by %s after %v", got.exit, got.after, c.signal, c.want)
				}
			})
		})
	}
}

func TestTerminateKillsAfterItsGrace(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		h := begin(t, b, command("stubborn", "24h"))
		synctest.Wait() // until it ignores signals
		if err := h.Terminate(t.Context(), 40*time.Second); err != nil {
			t.Fatal(err)
		}
		got := await(t, h)
		if got.after != 40*time.Second || got.exit.Signal != "KILL" || got.exit.Cause != wire.CauseTerminated {
			t.Errorf("ended %+v after %v, want terminated by KILL after 40s", got.exit, got.after)
		}
		if got.stdout != "ready\nTERM\n" {
			t.Errorf("the command saw %q, want one TERM", got.stdout)
		}
		wantCode(t, "Terminate when it has ended", h.Terminate(t.Context(), 0), wire.CodeEnded)
	})
}

func TestFirstCauseCounts(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("stubborn", "24h")
		p.Timeout, p.KillAfter = time.Minute, time.Hour
		h := begin(t, b, p)
		<-time.After(time.Minute)
		synctest.Wait()
		if err := h.Terminate(t.Context(), time.Second); err != nil {
			t.Fatal(err)
		}
		if got := await(t, h); got.exit.Cause != wire.CauseTimedOut || got.after != time.Second {
			t.Errorf("ended %+v after %v, want timed out, a second later", got.exit, got.after)
		}
	})
}

func TestPipesThatStayOpenAreWaitedForAndThenSaid(t *testing.T) {
	for _, c := range []struct {
		name string
		hold string
		want time.Duration
		held bool
	}{
		{"shorter than the drain deadline", "1500ms", 1500 * time.Millisecond, false},
		{"longer", "1h", wire.DrainDeadline, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				got := await(t, begin(t, b, command("hold", c.hold, "last words")))
				if got.after != c.want || got.exit.PipesHeld != c.held || got.stdout != "last words\n" || got.exit.Cause != wire.CauseExited {
					t.Errorf("ended %+v after %v with %q, want pipes held %v after %v", got.exit, got.after, got.stdout, c.held, c.want)
				}
			})
		})
	}
}

// Something that escaped and prints now and then cannot put off the end for ever.
func TestDrainDeadlineIsForAllThatStillComes(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		gone := make(chan struct{})
		r.Handle("haunted", func(p *executortest.Process) int {
			p.Hold(time.Hour)
			go func() {
				defer close(gone)
				for err := error(nil); err == nil; {
					<-time.After(600 * time.Millisecond)
					_, err = p.Stdout.Write([]byte("boo\n"))
				}
			}()
			return 0
		})
		got := await(t, begin(t, b, command("haunted")))
		if got.after != wire.DrainDeadline || !got.exit.PipesHeld || got.stdout != "boo\nboo\nboo\n" {
			t.Errorf("ended %+v after %v with %q, want pipes held after %v", got.exit, got.after, got.stdout, wire.DrainDeadline)
		}
		<-gone // its pipe has no reader any more
	})
}

// The command ends while its log is full and its pipe is too. Time in which there is no room does
// not count against the drain deadline.
func TestSlowReaderLosesNothingAtTheEnd(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		const size = wire.OutputWindow + 60<<10
		h := begin(t, b, command("flood", "4255744"))
		synctest.Wait()
		if r.Running() != 0 {
			t.Fatal("the command has not ended, so this tests nothing")
		}
		<-time.After(time.Minute)
		out, exit := readSlowly(t, h, 10*time.Second)
		if exit.PipesHeld || !exit.Success() {
			t.Errorf("ended %+v, want success", exit)
		}
		wantPattern(t, out, size)
	})
}

func TestOutputIsExactWhateverTheSizesOfItsPieces(t *testing.T) {
	for _, size := range []string{"1", "7", "4096", "32769", "100000"} {
		t.Run(size, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				got := await(t, begin(t, b, command("flood", "100003", size)))
				wantPattern(t, []byte(got.stdout), 100_003)
			})
		})
	}
}

func TestEndOfACommandTellsStraysAndSignal(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		r.Handle("leaves", func(p *executortest.Process) int {
			p.Stray(2)
			p.Die("SEGV")
			return 0
		})
		got := await(t, begin(t, b, command("leaves"))).exit
		if want := (wire.ExitStatus{Signal: "SEGV", Cause: wire.CauseSignalled, Strays: 2}); !got.Equal(want) {
			t.Errorf("ended %+v, want %+v", got, want)
		}
	})
}

func TestStdinOfACommandThatStoppedReadingIsClosed(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("deaf", "1h")
		p.Stdin = true
		h := begin(t, b, p)
		r, err := h.Read(t.Context(), wire.ReadRequest{Wait: time.Hour})
		if err != nil || len(r.Chunks) != 1 {
			t.Fatalf("Read: %+v, %v", r, err)
		}
		if err := h.Write(t.Context(), 0, []byte("x")); err != nil {
			t.Fatalf("bytes that fit into the queue: %v", err)
		}
		synctest.Wait()
		if err := h.Write(t.Context(), 1, []byte("y")); !errors.Is(err, wire.ErrStdinClosed) {
			t.Errorf("Write: %v, want ErrStdinClosed", err)
		}
	})
}

func TestTerminalIsResized(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		sizes := make(chan wire.WinSize, 2)
		r.Handle("sizes", func(p *executortest.Process) int {
			sizes <- p.Size()
			p.Sleep(time.Minute)
			sizes <- p.Size()
			return 0
		})
		p := command("sizes")
		p.TTY = &wire.WinSize{Rows: 24, Cols: 80}
		h := begin(t, b, p)
		synctest.Wait() // until it has looked once
		if err := h.Resize(t.Context(), wire.WinSize{Rows: 50, Cols: 132}); err != nil {
			t.Fatal(err)
		}
		await(t, h)
		if a, z := <-sizes, <-sizes; a.Rows != 24 || a.Cols != 80 || z.Rows != 50 || z.Cols != 132 {
			t.Errorf("sizes %v and %v", a, z)
		}
	})
}
