package executor_test

import (
	"testing"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func TestGraceCountsAnewFromEachRegistrationAndNotBetween(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("sleep", "100h")
		begin(t, b, p).Close()
		viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 5 {
			<-time.After(wire.DefaultGrace - time.Second)
			b.SetReachable(false)
			<-time.After(time.Hour)
			b.SetReachable(true)
		}
		exit, err := viewer.Wait(t.Context())
		want := 5*(wire.DefaultGrace-time.Second+time.Hour) + wire.DefaultGrace
		if took := time.Since(start); err != nil || exit.Cause != wire.CauseTerminated || took != want {
			t.Errorf("ended %v, %v after %v, want terminated after %v", exit, err, took, want)
		}
	})
}

func TestNobodysAbsenceLastsLongerThanTheExecutorAllows(t *testing.T) {
	for name, reachable := range map[string]bool{"registered": true, "not registered": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{MaxAbsence: 5 * time.Hour}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				b.SetReachable(reachable)
				p := command("sleep", "100h")
				p.Grace = 20 * time.Hour
				h := begin(t, b, p)
				<-time.After(10 * time.Hour)
				viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
				if err != nil {
					t.Fatal(err)
				}
				h.Close()
				if got := await(t, viewer); got.after != 5*time.Hour || got.exit.Cause != wire.CauseTerminated {
					t.Errorf("ended %v after %v, want terminated after 5h", got.exit, got.after)
				}
			})
		})
	}
}

func TestDetachedStartNeedsNobodyAndKeepsItsOutput(t *testing.T) {
	inBubble(t, executor.LocalConfig{State: t.TempDir()}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("flood", "10000000") // more than a window
		p.Detach = true
		begin(t, b, p).Close()
		<-time.After(100 * time.Hour)
		_, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		wantCode(t, "attach when it is not kept any more", err, wire.CodeUnknown)
		q := command("flood", "10000000")
		q.Detach = true
		begin(t, b, q).Close()
		<-time.After(time.Minute)
		h, err := b.Attach(t.Context(), q.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		out, exit := readSlowly(t, h, 0)
		wantPattern(t, out, 10_000_000)
		if exit.Code != 0 {
			t.Errorf("ended %v", exit)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		if err := b.Remove(t.Context(), wire.ExecRef{ID: q.ID}); err != nil {
			t.Fatal(err)
		}
		if n := b.StoreUsed(); n != 0 {
			t.Errorf("%d bytes of files are left", n)
		}
	})
}
