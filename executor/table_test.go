package executor_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

func TestStartOfTheSameIDWaitsForTheFirstAndRunsOnce(t *testing.T) {
	g, r := newGated(false)
	inBubble(t, executor.LocalConfig{Runner: g}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		g.gate = make(chan struct{})
		p := command("sleep", "1m", "done")
		started := make(chan error, 5)
		for range cap(started) {
			go func() {
				_, err := b.Start(context.Background(), p)
				started <- err
			}()
		}
		synctest.Wait()
		if len(started) != 0 || g.tried() != 1 {
			t.Fatalf("%d calls returned and %d tries were made before the first was done, want 0 and 1", len(started), g.tried())
		}
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Start(impatient, p); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a repeat whose context ended: %v", err)
		}
		if _, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{}); wire.CodeOf(err) != wire.CodeNotFound {
			t.Errorf("attach before the start is done: %v, want not_found", err)
		}
		close(g.gate)
		for range cap(started) {
			if err := <-started; err != nil {
				t.Error(err)
			}
		}
		if r.Starts() != 1 {
			t.Errorf("%d processes were started, want 1", r.Starts())
		}
	})
}

func TestAnotherRequestUnderTheSameIDIsAConflict(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		p := command("echo", "a")
		begin(t, b, p)
		for name, change := range map[string]func(*wire.ExecParams){
			"other words":       func(q *wire.ExecParams) { q.Argv = []string{"echo", "b"} },
			"other environment": func(q *wire.ExecParams) { q.Env = []string{"A=b"} },
			"other time limit":  func(q *wire.ExecParams) { q.Timeout = time.Hour },
			"with stdin":        func(q *wire.ExecParams) { q.Stdin = true },
			"wider mode":        func(q *wire.ExecParams) { q.Sandbox = wire.SandboxFullAccess },
		} {
			q := p
			change(&q)
			_, err := b.Start(t.Context(), q)
			wantCode(t, name, err, wire.CodeConflict)
		}
		if r.Starts() != 1 {
			t.Errorf("%d processes were started, want 1", r.Starts())
		}
	})
}

func TestFailedStartIsKeptAndNotTriedAgain(t *testing.T) {
	for name, failure := range map[string]error{
		"127":        wire.Errorf(wire.CodeNotFoundCmd, "no"),
		"126":        wire.Errorf(wire.CodeNotExec, "no"),
		"no sandbox": wire.Errorf(wire.CodeSandbox, "no"),
		"a defect":   errors.New("no"),
	} {
		t.Run(name, func(t *testing.T) {
			g, r := newGated(true)
			inBubble(t, executor.LocalConfig{Runner: g}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				g.fail(failure)
				p := command("echo", "now")
				_, err := b.Start(t.Context(), p)
				if err == nil || err.Error() != failure.Error() {
					t.Fatalf("first start: %v", err)
				}
				want := wire.CodeOf(err)
				if want == wire.CodeUnknown {
					want = wire.CodeInternal
				}
				g.fail(nil)
				_, err = b.Start(t.Context(), p)
				wantCode(t, "repeated start", err, want)
				if g.tried() != 1 || r.Starts() != 0 {
					t.Errorf("%d tries and %d starts, want 1 and 0", g.tried(), r.Starts())
				}
			})
		})
	}
}

func TestRefusedStartLeavesNothingBehind(t *testing.T) {
	inBubble(t, executor.LocalConfig{Workspaces: []string{"/w"}}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		p := command("echo", "now")
		refused := p
		refused.Roots = []string{"/elsewhere"}
		_, err := b.Start(t.Context(), refused)
		wantCode(t, "workspace of nobody's", err, wire.CodePolicy)
		h := begin(t, b, p) // the id is free for what is allowed
		if got := await(t, h).stdout; got != "now\n" || r.Starts() != 1 {
			t.Errorf("output %q, %d starts", got, r.Starts())
		}
	})
}

func TestIDIsRememberedWhenItsResultIsNot(t *testing.T) {
	inBubble(t, executor.LocalConfig{Keep: time.Minute}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		p := command("echo", "x")
		h := begin(t, b, p)
		await(t, h)
		<-time.After(time.Hour)
		if _, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{}); err != nil {
			t.Errorf("attach while a controller is there: %v", err)
		}
		h.Close()
		<-time.After(2 * time.Minute)
		_, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		wantCode(t, "attach when the result is gone", err, wire.CodeUnknown)
		<-time.After(20 * time.Hour)
		_, err = b.Start(t.Context(), p)
		wantCode(t, "start again", err, wire.CodeUnknown)
		q := p
		q.Argv = []string{"echo", "y"}
		_, err = b.Start(t.Context(), q)
		wantCode(t, "another request", err, wire.CodeConflict)
		if all, _ := b.List(t.Context()); r.Starts() != 1 || len(all) != 0 {
			t.Errorf("%d starts and %d listed, want 1 and 0", r.Starts(), len(all))
		}
	})
}

func TestLimitOfRunningCommandsIsSaidAndLifted(t *testing.T) {
	inBubble(t, executor.LocalConfig{MaxExecs: 2}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		first := begin(t, b, command("sleep", "1m"))
		begin(t, b.As(executor.Caller{Principal: "another", Key: "another", Rights: keys.AllRights()}), command("sleep", "1h"))
		late := command("echo", "x")
		_, err := b.Start(t.Context(), late)
		wantCode(t, "a third command", err, wire.CodeBusy)
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.RetryAfter <= 0 {
			t.Errorf("a third command: %v without advice when to come back", err)
		}
		await(t, first)
		synctest.Wait()
		await(t, begin(t, b, late))
		if r.Starts() != 3 {
			t.Errorf("%d starts, want 3", r.Starts())
		}
	})
}

func TestForeignExecIsAsUnknownAsNone(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		mine, theirs := b.As(executor.Caller{Principal: "mine", Key: "mine", Rights: keys.AllRights()}), b.As(executor.Caller{Principal: "theirs", Key: "theirs", Rights: keys.AllRights()})
		p := command("sleep", "1h")
		begin(t, mine, p)
		none := wire.NewExecID()
		for _, control := range []bool{false, true} {
			_, foreign := theirs.Attach(t.Context(), p.ID, wire.AttachOptions{Control: control})
			_, unknown := theirs.Attach(t.Context(), none, wire.AttachOptions{Control: control})
			wantCode(t, "foreign exec", foreign, wire.CodeNotFound)
			if foreign.Error() != "no exec "+p.ID.String() || unknown.Error() != "no exec "+none.String() {
				t.Errorf("the answers differ: %v, %v", foreign, unknown)
			}
		}
		if all, _ := theirs.List(t.Context()); len(all) != 0 {
			t.Errorf("somebody else's commands are listed: %v", all)
		}
		// The same id under another principal is another exec.
		begin(t, theirs, p)
		if r.Starts() != 2 {
			t.Errorf("%d starts, want 2", r.Starts())
		}
	})
}

func TestCloseEndsEverythingAndWaits(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, r *executortest.Runner, b *executor.Local) {
		soft, hard := begin(t, b, command("sleep", "1h")), begin(t, b.As(executor.Caller{Principal: "x", Key: "x", Rights: keys.AllRights()}), command("stubborn", "1h"))
		full := begin(t, b, command("flood", "100000000")) // waits for room in its log
		synctest.Wait()
		began := time.Now()
		b.Close()
		if took := time.Since(began); took != wire.DefaultKillAfter {
			t.Errorf("Close took %v, want the %v that a stubborn command has", took, wire.DefaultKillAfter)
		}
		if r.Running() != 0 {
			t.Errorf("%d commands run on", r.Running())
		}
		for p, signal := range map[wire.ExecProcess]wire.Signal{soft: "TERM", hard: "KILL", full: "TERM"} {
			if exit, err := p.Wait(t.Context()); err != nil || exit.Signal != signal || exit.Cause != wire.CauseTerminated {
				t.Errorf("ended %+v, %v, want by %s, terminated", exit, err, signal)
			}
		}
		_, err := b.Start(t.Context(), command("echo"))
		wantCode(t, "start after Close", err, wire.CodeShutdown)
		b.Close() // a second one has nothing to wait for
	})
}

func TestBackendNeedsARunner(t *testing.T) {
	if _, err := executor.NewLocal(executor.LocalConfig{}); err == nil {
		t.Fatal("a backend without a runner was made")
	}
}
