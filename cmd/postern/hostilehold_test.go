package main

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

// R7: a Start that was held back runs within its deadline or never, whoever still waits for it.
func TestHeldStartRunsWithinItsDeadlineOrNever(t *testing.T) {
	const m1 = 1 + 2 + 1232
	for _, c := range []struct {
		name string
		cold bool // the session is founded on the same circuit
		how  treatment
		runs int
	}{
		{"20 s", false, treatment{hold: 20 * time.Second}, 1},
		{"29 s", false, treatment{hold: 29 * time.Second}, 1},
		{"31 s", false, treatment{hold: 31 * time.Second}, 0},
		{"half of it for 31 s", false, treatment{after: 100, pause: 31 * time.Second}, 0},
		{"an hour", false, treatment{hold: time.Hour}, 0},
		{"two days", false, treatment{hold: 48 * time.Hour}, 0},
		{"the handshake for 5 s", true, treatment{hold: 5 * time.Second}, 0},
		{"the third message for 5 s", true, treatment{after: m1, pause: 5 * time.Second}, 1},
		{"the third message for 11 s", true, treatment{after: m1, pause: 11 * time.Second}, 0},
		{"the third message for a day", true, treatment{after: m1, pause: 24 * time.Hour}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				if !c.cold {
					r.run(t, "first")
				}
				r.treats(func(int) treatment { return c.how })
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := r.remote.Start(ctx, wire.ExecParams{Argv: []string{"append", "held", "0", "0s"}}); err == nil {
					t.Error("Start was answered")
				}
				r.treats(nil)
				r.dropClient()
				<-time.After(c.how.hold + c.how.pause + time.Minute)
				if n := r.ledger.startsOf("held"); n != c.runs {
					t.Errorf("it was started %d times, want %d", n, c.runs)
				}
				r.run(t, "afterwards")
			})
		})
	}
}

// R7: the same for what acts without a handle.
func TestHeldActRunsWithinItsDeadlineOrNever(t *testing.T) {
	for hold, acts := range map[time.Duration]int{20 * time.Second: 1, 31 * time.Second: 0, time.Hour: 0, 48 * time.Hour: 0} {
		t.Run(hold.String(), func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				p, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"signals", "long", "100h"}, Detach: true})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Millisecond) // it ignores signals now
				p.Close()
				r.treats(func(int) treatment { return treatment{hold: hold} })
				for _, act := range []func(context.Context, wire.ExecRef) error{
					func(ctx context.Context, ref wire.ExecRef) error { return r.remote.Signal(ctx, ref, "USR1") },
					func(ctx context.Context, ref wire.ExecRef) error { return r.remote.Terminate(ctx, ref, time.Hour) },
				} {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if err := act(ctx, wire.ExecRef{ID: p.ID()}); err == nil {
						t.Error("it was answered")
					}
					cancel()
				}
				r.treats(nil)
				r.dropClient()
				<-time.After(hold + time.Minute)
				for _, s := range []wire.Signal{"USR1", "TERM"} {
					if n := len(r.ledger.actsOf("long", s)); n != acts {
						t.Errorf("%s acted %d times, want %d", s, n, acts)
					}
				}
			})
		})
	}
}

// mostLag is how late anything can act that was sent on an open channel.
const mostLag = wire.PingLag + wire.PingSilence

// R7: within a channel bytes can lag, but never by more than a Ping may and a silence may last.
func TestHeldSignalOfAHandleActsSoonOrNever(t *testing.T) {
	for _, c := range []struct {
		name       string
		lag, stall time.Duration // bytes come later and later, until they lag; then nothing comes at all
		at         time.Duration // after the signal was sent the stall begins
		acts       int
	}{
		{"a short stall", 0, 20 * time.Second, 0, 1},
		{"a stall longer than a silence", 0, 50 * time.Second, 0, 0},
		{"a stall of an hour", 0, time.Hour, 0, 0},
		{"a lag just short of the limit", 55 * time.Second, 0, 55 * time.Second, 1},
		{"a lag and a stall, as late as can be", 55 * time.Second, 25 * time.Second, 54 * time.Second, 1},
		{"a lag and a stall beyond the limit", 55 * time.Second, 30 * time.Second, 0, 0},
		{"a lag and a long stall", 55 * time.Second, time.Hour, 54 * time.Second, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
				p, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"signals", "long", "100h"}, Detach: true})
				if err != nil {
					t.Fatal(err)
				}
				<-time.After(time.Millisecond) // it ignores signals now
				rec := r.recorded()[0]
				for lag := time.Duration(0); lag < c.lag; lag += time.Second {
					<-time.After(4 * time.Second) // so that no silence is ever too long
					rec.lag(lag)
				}
				if c.at == 0 {
					rec.stall()
				}
				signalled := time.Now()
				gone, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				p.Signal(gone, "USR1") // its caller waits no more, so it is not repeated
				for c.at > 0 && time.Since(signalled) < c.at {
					<-time.After(time.Second)
					rec.lag(c.lag)
				}
				rec.stall()
				<-time.After(c.stall)
				rec.release()
				synctest.Wait()
				p.Close()
				<-time.After(time.Minute)
				at := r.ledger.actsOf("long", "USR1")
				if len(at) != c.acts {
					t.Errorf("the signal acted %d times, want %d", len(at), c.acts)
				}
				for _, at := range at {
					if t.Logf("it acted after %v", at.Sub(signalled)); at.Sub(signalled) > mostLag {
						t.Errorf("that is more than %v", mostLag)
					}
				}
			})
		})
	}
}

// A circuit that was held back displaces nobody.
func TestHeldAttachDoesNotTakeTheExecFromALaterOne(t *testing.T) {
	withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
		p, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"append", "x", "4", "1m"}})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		before := len(r.recorded())
		r.treats(func(n int) treatment {
			if n == before {
				return treatment{hold: 20 * time.Second, deaf: true}
			}
			return treatment{}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.remote.Attach(ctx, p.ID(), wire.AttachOptions{Control: true}); err == nil {
			t.Error("the held Attach was answered")
		}
		later, err := r.remote.Attach(t.Context(), p.ID(), wire.AttachOptions{Control: true})
		if err != nil {
			t.Fatal(err)
		}
		defer later.Close()
		<-time.After(30 * time.Second) // the held one has come by now
		if err := later.Signal(t.Context(), "CONT"); err != nil {
			t.Errorf("the later one does not control any more: %v", err)
		}
		if status, err := later.Wait(t.Context()); err != nil || status.Code != 4 {
			t.Errorf("ended %+v, %v, want code 4", status, err)
		}
	})
}

// Whatever a relay does not do, every call of the client returns.
func TestSilentRelayHangsNoCall(t *testing.T) {
	withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
		p, err := r.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"signals", "long", "1h"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		r.treats(func(int) treatment { return treatment{deaf: true} })
		for _, rec := range r.recorded() {
			rec.mute()
		}
		// Twice the silence of a channel and the handshake that follows it, then the patience.
		const most = 2*(wire.PingSilence+2*wire.HandshakeTimeout) + hostilePatience
		ref := wire.ExecRef{ID: p.ID()}
		calls := map[string]func(context.Context) error{
			"Wait":      func(ctx context.Context) error { _, err := p.Wait(ctx); return err },
			"Signal":    func(ctx context.Context) error { return p.Signal(ctx, "USR1") },
			"Terminate": func(ctx context.Context) error { return p.Terminate(ctx, 0) },
			"Write":     func(ctx context.Context) error { return p.Write(ctx, 0, make([]byte, 8<<20)) },
			"Start": func(ctx context.Context) error {
				_, err := r.remote.Start(ctx, wire.ExecParams{Argv: []string{"append", "x", "0", "0s"}})
				return err
			},
			"Attach": func(ctx context.Context) error {
				_, err := r.remote.Attach(ctx, p.ID(), wire.AttachOptions{})
				return err
			},
			"List":             func(ctx context.Context) error { _, err := r.remote.List(ctx); return err },
			"Remote.Signal":    func(ctx context.Context) error { return r.remote.Signal(ctx, ref, "USR2") },
			"Remote.Terminate": func(ctx context.Context) error { return r.remote.Terminate(ctx, ref, 0) },
			"Remove":           func(ctx context.Context) error { return r.remote.Remove(ctx, ref) },
		}
		began := time.Now()
		ended := make(chan string)
		for name, call := range calls {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
				defer cancel()
				if err := call(ctx); err == nil || ctx.Err() != nil {
					t.Errorf("%s: %v after %v", name, err, time.Since(began))
				}
				ended <- name
			}()
		}
		for range calls {
			name := <-ended
			took := time.Since(began)
			if t.Logf("%s returned after %v", name, took.Round(time.Second)); took > most {
				t.Errorf("%s: that is more than %v", name, most)
			}
		}
		r.treats(nil)
		r.run(t, "afterwards")
		for _, s := range []wire.Signal{"USR1", "USR2"} {
			if n := len(r.ledger.actsOf("long", s)); n > 1 {
				t.Errorf("%s acted %d times", s, n)
			}
		}
		if n := r.ledger.startsOf("x"); n > 1 {
			t.Errorf("it was started %d times", n)
		}
	})
}

// A long list comes in several messages: the silence may begin between two of them.
func TestListThatStallsAnywhereHangsNoCall(t *testing.T) {
	withHostileRelay(t, func(t *testing.T, r *hostileRelay) {
		const execs = 1200
		for range execs {
			p, err := r.mine().Start(t.Context(), wire.ExecParams{Argv: []string{"true"}})
			if err != nil {
				t.Fatal(err)
			}
			p.Close()
		}
		if infos, err := r.remote.List(t.Context()); err != nil || len(infos) != execs {
			t.Fatalf("%d execs are listed, %v, want %d", len(infos), err, execs)
		}
		for _, stall := range []int{1000, 30_000, 60_000, 75_000, 90_000} {
			r.treats(func(int) treatment { return treatment{stall: stall} })
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			if infos, err := r.remote.List(ctx); err == nil || ctx.Err() != nil {
				t.Errorf("after %d bytes: %d execs, %v", stall, len(infos), err)
			}
			cancel()
		}
	})
}
