package client

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

func TestSessionIsMadeOnceAndUsedByEveryExec(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				out, err := Environment{Backend: w.remote}.Command("echo", "x").Output(t.Context())
				if err != nil || string(out) != "x\n" {
					t.Errorf("output %q, %v", out, err)
				}
			})
		}
		all.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		handshakes := 0
		for _, kind := range w.kinds {
			if kind == handshake {
				handshakes++
			}
		}
		if handshakes != 1 || len(w.kinds) != 20 {
			t.Errorf("%d handshakes on %d circuits, want 1 on 20", handshakes, len(w.kinds))
		}
	})
}

func TestForgottenSessionIsReplacedByOneHandshake(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo", "x")
		w.wantKinds("first exec", handshake)
		w.output("echo", "x")
		w.wantKinds("second", known)
		w.restart()
		w.output("echo", "x")
		w.wantKinds("after a restart", known, handshake)
		w.output("echo", "x")
		w.wantKinds("the next", known)
		if n := w.runner.Starts(); n != 4 {
			t.Errorf("%d commands ran, want 4", n)
		}
	})
}

// noChannel is the answer of an executor, or of anybody in between, that nobody can verify.
func noChannel(s wire.Stream) {
	s.Read(make([]byte, 4096))
	s.Write([]byte{0})
	wire.WriteFrame(s, &wire.Refused{Code: wire.CodeNoChannel})
	s.CloseWrite()
}

func TestSecondNoChannelInOneAttemptIsAnError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo", "x")
		w.wantKinds("first exec", handshake)
		w.set(func() { w.serve = noChannel })
		_, err := w.remote.List(t.Context())
		wantCode(t, "list", err, wire.CodeNoChannel)
		w.wantKinds("an attempt", known, handshake)
		w.restart()
		w.output("echo", "x") // a forged answer did no lasting harm
		if n := w.runner.Starts(); n != 2 {
			t.Errorf("%d commands ran, want 2", n)
		}
	})
}

func TestLateRequestIsRepeatedOnOneFreshSession(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo", "x")
		w.wantKinds("first exec", handshake)
		serve := w.serve
		w.set(func() {
			var n atomic.Int32
			w.serve = func(s wire.Stream) {
				if n.Add(1) == 1 { // the network holds the first circuit back
					<-time.After(wire.OpeningDeadline + time.Second)
				}
				serve(s)
			}
		})
		if out := w.output("echo", "y"); out != "y\n" {
			t.Errorf("output %q", out)
		}
		w.wantKinds("held back", known, handshake)
		if n := w.runner.Starts(); n != 2 {
			t.Errorf("%d commands ran, want 2", n)
		}
	})
}

func TestSessionIsRenewedInTheBackground(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		long := w.begin("sleep", "3h", "still here")
		w.wantKinds("first exec", handshake)
		first := w.remote.session.ID()
		<-time.After(5 * time.Minute) // a session that nobody uses ends after ten
		for w.clock() <= wire.SessionRenew {
			w.output("echo")
			w.wantKinds("before half an hour", known)
			<-time.After(5 * time.Minute)
		}
		w.output("echo")
		w.wantKinds("after half an hour", known, handshake)
		second := w.remote.session.ID()
		if first == second {
			t.Fatal("the session was not replaced")
		}
		w.output("echo")
		w.wantKinds("afterwards", known)
		<-time.After(8 * time.Minute)
		w.output("echo")
		w.wantKinds("on the new one", known)
		var out strings.Builder
		for e, err := range long.Events(t.Context(), 0) {
			if err != nil {
				t.Fatalf("the command that runs since the first session: %v", err)
			}
			if e.Chunk != nil {
				out.WriteString(string(e.Chunk.Data))
			}
		}
		if out.String() != "still here\n" {
			t.Errorf("output %q", out.String())
		}
	})
}

func TestRenewalThatFailsIsTriedAgainByTheNextUser(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo")
		for range 4 {
			<-time.After(8 * time.Minute)
			w.output("echo")
		}
		synctest.Wait()
		w.set(func() { w.kinds = nil })
		// The last of these was after half an hour, so a renewal has taken place; wait for the next.
		for range 3 {
			<-time.After(8 * time.Minute)
			w.output("echo")
		}
		w.wantKinds("on the second session", known, known, known)
		id := w.remote.session.ID()
		<-time.After(7 * time.Minute)
		var failed atomic.Bool
		w.set(func() { w.between = func(s wire.Stream) wire.Stream { return &picky{Stream: s, failed: &failed} } })
		w.output("echo")
		w.wantKinds("a renewal that fails", known, handshake)
		if w.remote.session.ID() != id {
			t.Fatal("a failed renewal replaced the session")
		}
		w.output("echo")
		w.wantKinds("the next", known, handshake)
		if w.remote.session.ID() == id {
			t.Error("the session was not renewed")
		}
	})
}

// picky fails at the first handshake that is tried on any of them.
type picky struct {
	wire.Stream
	failed *atomic.Bool
}

func (s *picky) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	if p[0] == handshake && len(p) > 1000 && !s.failed.Swap(true) {
		s.Reset(wire.CodeBusy)
	}
	return n, err
}

func TestIdleSessionIsNotUsedAgain(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo")
		<-time.After(wire.SessionIdle)
		w.output("echo")
		w.wantKinds("after ten idle minutes", handshake, handshake)
	})
}

// What went wrong before the request was on its way cannot have run anything.
func TestErrorBeforeAnythingWasSentIsNotALoss(t *testing.T) {
	lost := errors.Join(errors.New("relay gone"), wire.ErrLost)
	for _, c := range []struct {
		name string
		warm bool
		make func(w *world)
		code wire.Code
	}{
		{"no circuit", false, func(w *world) { w.refuse = lost }, wire.CodeUnreachable},
		{"no circuit, warm", true, func(w *world) { w.refuse = lost }, wire.CodeUnreachable},
		{"refused by the relay", false, func(w *world) { w.refuse = &relayRefusal{wire.Errorf(wire.CodeUnreachable, "offline")} }, wire.CodeUnreachable},
		{"an end during the handshake", false, func(w *world) {
			w.serve = func(s wire.Stream) {
				s.Read(make([]byte, 100))
				s.Reset(wire.CodeUnknown)
			}
		}, wire.CodeUnknown},
		{"a clean end during the handshake", false, func(w *world) {
			w.serve = func(s wire.Stream) { s.CloseWrite() }
		}, wire.CodeInternal},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if c.warm {
					w.output("echo")
				}
				starts := w.runner.Starts()
				w.set(func() { c.make(w) })
				_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"echo"}})
				wantCode(t, "start", err, c.code)
				if errors.Is(err, wire.ErrLost) {
					t.Errorf("start: %v, which says that the command may run", err)
				}
				if w.runner.Starts() != starts {
					t.Error("the command ran")
				}
			})
		})
	}
}

func TestErrorAfterTheRequestWasSentIsALoss(t *testing.T) {
	for _, warm := range []bool{false, true} {
		for name, end := range map[string]func(wire.Stream){
			"reset":     func(s wire.Stream) { s.Reset(wire.CodeUnknown) },
			"clean end": func(s wire.Stream) { s.CloseWrite() },
		} {
			t.Run(name, func(t *testing.T) {
				inWorld(t, func(t *testing.T, w *world) {
					w.impatient()
					if warm {
						w.output("echo")
					}
					// Only the executor's answer to Start is withheld: what comes before it is a
					// channel's answer, or the second message of the handshake and welcome.
					allow := int64(1 + 2 + 1152 + 300)
					if warm {
						allow = 1 + 32
					}
					w.set(func() {
						w.between = func(s wire.Stream) wire.Stream {
							return &mute{Stream: s, allow: allow, end: end}
						}
					})
					_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"sleep", "1m"}})
					wantLost(t, "start", err)
				})
			})
		}
	}
}

// unsure delivers a write and fails all the same, as a connection does that ends at the wrong moment.
type unsure struct {
	wire.Stream
	writes int // until then
}

func (s *unsure) Write(p []byte) (int, error) {
	n, err := s.Stream.Write(p)
	if s.writes--; s.writes == 0 {
		return 0, errors.New("broken")
	}
	return n, err
}

func TestRequestWhoseSendingFailedMayHaveRun(t *testing.T) {
	for _, c := range []struct {
		name   string
		warm   bool
		writes int
	}{{"on a known session", true, 1}, {"after a handshake", false, 3}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.impatient()
				if c.warm {
					w.output("echo")
				}
				starts := w.runner.Starts()
				w.set(func() { w.between = func(s wire.Stream) wire.Stream { return &unsure{Stream: s, writes: c.writes} } })
				_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"sleep", "1m"}})
				wantLost(t, "start", err)
				synctest.Wait()
				if n := w.runner.Starts() - starts; n > 1 {
					t.Errorf("it ran %d times", n)
				}
			})
		})
	}
}

func TestContextEndsAStartThatGetsNoAnswer(t *testing.T) {
	for _, c := range []struct {
		name string
		warm bool
		lost bool
	}{{"in the handshake", false, false}, {"after the request", true, true}} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				if c.warm {
					w.output("echo")
				}
				w.set(func() { w.serve = func(s wire.Stream) { <-w.ctx.Done() } })
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				began := time.Now()
				_, err := w.remote.Start(ctx, wire.ExecParams{Argv: []string{"echo"}})
				// The stream has the deadline too, and its timer may be the first of the two.
				timedOut := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
				if !timedOut || errors.Is(err, wire.ErrLost) != c.lost || time.Since(began) != 3*time.Second {
					t.Errorf("start: %v after %v, want the deadline, a loss %v", err, time.Since(began), c.lost)
				}
			})
		})
	}
}

func TestClosedRemoteDoesNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		p := w.begin("sleep", "1m")
		w.remote.Close()
		if _, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"echo"}}); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("Start: %v, want ErrClosed", err)
		}
		if _, err := p.Read(t.Context(), wire.ReadRequest{}); !errors.Is(err, wire.ErrClosed) {
			t.Errorf("Read: %v, want ErrClosed", err)
		}
		if w.runner.Running() != 1 {
			t.Error("closing the client ended the command")
		}
	})
}
