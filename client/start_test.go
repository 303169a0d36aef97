package client

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func TestStartWhoseAnswerIsLostIsRepeatedAndRunsOnce(t *testing.T) {
	for _, warm := range []bool{true, false} {
		inWorld(t, func(t *testing.T, w *world) {
			allow := int64(1 + 2 + 1152 + 300) // the handshake's answer and welcome
			if warm {
				w.output("echo")
				allow = 1 + 32
			}
			starts := w.runner.Starts()
			var told []Interruption
			w.remote.cfg.Interrupted = func(i Interruption) { told = append(told, i) }
			circuits := 0
			w.fused(func() (int64, int64) {
				if circuits++; circuits > 3 {
					return -1, -1
				}
				defer func() { allow = 1 + 32 }() // the session is known now
				return allow, -1
			})
			p, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"sleep", "1m", "x"}})
			if err != nil {
				t.Fatal(err)
			}
			if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
				t.Errorf("Wait: %+v, %v", status, err)
			}
			if n := w.runner.Starts() - starts; n != 1 {
				t.Errorf("it ran %d times", n)
			}
			if len(told) != 2 || told[0].Exec != p.ID() || told[0].Err == nil || told[1].Err != nil {
				t.Errorf("told %+v, want a loss and its end", told)
			}
		})
	}
}

func TestRepeatedStartIsTheSameRequestOfTheSameEpoch(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var got []*wire.Start
		talk := func(c *noiseconn.Conn, first wire.Message) {
			s := *first.(*wire.Start)
			if got = append(got, &s); len(got) < 4 {
				c.Reset(wire.CodeShutdown)
				return
			}
			saying(nil, exit(1, 0))(c, first)
		}
		var epochs atomic.Uint32
		w.doubleOf(func() wire.ID { return wire.ID{byte(epochs.Add(1))} }, talk)
		if _, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}}); err != nil {
			t.Fatal(err)
		}
		for i, s := range got {
			if s.Epoch != (wire.ID{1}) || s.ID != got[0].ID || s.Instance != got[0].Instance || s.Argv[0] != "x" {
				t.Errorf("try %d: %+v, want the first one again", i, s)
			}
			if i > 0 && s.Attempt <= got[i-1].Attempt {
				t.Errorf("try %d has the attempt number %d after %d", i, s.Attempt, got[i-1].Attempt)
			}
		}
	})
}

func TestAnswerToARepeatedStart(t *testing.T) {
	for code := wire.CodeInternal; code.Known(); code++ {
		t.Run(code.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.remote.patience = time.Minute
				n := 0
				w.double(func(c *noiseconn.Conn, first wire.Message) {
					if n++; n == 1 {
						c.Reset(wire.CodeUnknown)
						return
					}
					refusing(code)(c, first)
				})
				_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
				switch code {
				case wire.CodeConflict, wire.CodePolicy, wire.CodeSandbox, wire.CodeBadRequest, wire.CodeLimit, wire.CodeNotFoundCmd, wire.CodeNotExec:
					wantCode(t, "a decision", err, code)
					if errors.Is(err, wire.ErrLost) {
						t.Errorf("%v says that the command may run", err)
					}
				default: // the first one may have run
					wantCode(t, "no decision", err, wire.CodeUnknown)
				}
			})
		})
	}
}

func TestStartIsRepeatedUntilItsContextEnds(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.double(func(c *noiseconn.Conn, _ wire.Message) { c.Reset(wire.CodeUnknown) })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		_, err := w.remote.Start(ctx, wire.ExecParams{Argv: []string{"x"}})
		wantLost(t, "Start", err)
		if !errors.Is(err, context.DeadlineExceeded) || w.clock() != 2*time.Minute {
			t.Errorf("Start: %v after %v, want the deadline", err, w.clock())
		}
	})
}

func TestStartIsRepeatedForADayAtMost(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.remote.patience = 100 * time.Hour
		w.output("echo")
		w.set(func() {
			w.serve = func(s wire.Stream) {
				s.Read(make([]byte, 4096))
				s.Reset(wire.CodeUnknown)
				w.refusing(wire.ErrLost)
			}
		})
		began := time.Now()
		_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
		wantLost(t, "Start", err)
		if took := time.Since(began); took != 24*time.Hour {
			t.Errorf("it was tried for %v, want a day", took)
		}
	})
}

func TestCloseEndsAStartThatIsRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.double(func(c *noiseconn.Conn, _ wire.Message) { c.Reset(wire.CodeUnknown) })
		go func() {
			<-time.After(time.Minute)
			w.remote.Close()
		}()
		_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
		wantLost(t, "Start", err)
		if !errors.Is(err, wire.ErrClosed) || w.clock() != time.Minute {
			t.Errorf("Start: %v after %v, want the end of Close", err, w.clock())
		}
	})
}

// An answer that never comes is a loss too, when the executor has been silent for too long.
func TestStartWithoutAnAnswerIsRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.output("echo")
		serve := w.serve
		var n atomic.Int32
		w.set(func() {
			w.serve = func(s wire.Stream) {
				if n.Add(1) == 1 {
					<-w.ctx.Done()
					return
				}
				serve(s)
			}
		})
		began := time.Now()
		w.output("echo", "x")
		if took := time.Since(began); took != wire.PingSilence {
			t.Errorf("it took %v, want %v", took, wire.PingSilence)
		}
	})
}

func TestControlWhoseAnswerIsLostIsRepeatedOnceWithTheSameNumber(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		var got []wire.Control
		lose := 1
		w.double(func(c *noiseconn.Conn, first wire.Message) {
			m := *first.(*wire.Control)
			got = append(got, m)
			switch {
			case len(got) <= lose:
				c.Reset(wire.CodeUnknown)
			case m.Verb == wire.VerbList:
				c.Send(&wire.List{})
				c.CloseWrite()
			case m.Verb == wire.VerbRemove:
				refusing(wire.CodeNotFound)(c, first)
			default:
				c.Send(&wire.Done{Request: m.Request})
				c.CloseWrite()
			}
		})
		ref := wire.ExecRef{ID: wire.NewExecID()}
		for name, do := range map[string]func() error{
			"signal":                  func() error { return w.remote.Signal(t.Context(), ref, "INT") },
			"terminate":               func() error { return w.remote.Terminate(t.Context(), ref, 0) },
			"remove, of what is gone": func() error { return w.remote.Remove(t.Context(), ref) },
			"list":                    func() error { _, err := w.remote.List(t.Context()); return err },
		} {
			got, lose = nil, 1
			if err := do(); err != nil || len(got) != 2 {
				t.Errorf("%s: %v after %d tries, want success after 2", name, err, len(got))
			} else if name != "list" && (got[0].Request != got[1].Request || *got[0].Instance != *got[1].Instance) {
				t.Errorf("%s: %+v and %+v are two requests", name, got[0], got[1])
			}
			got, lose = nil, 9
			err := do()
			wantLost(t, name, err)
			if len(got) != 2 {
				t.Errorf("%s was tried %d times, want twice", name, len(got))
			}
		}
		got, lose = nil, 0
		wantCode(t, "remove of what there is not", w.remote.Remove(t.Context(), ref), wire.CodeNotFound)
	})
}
