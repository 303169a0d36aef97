package client

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// returning is a double that loses each circuit after what it says on it.
func (w *world) returning(circuits ...func(c *noiseconn.Conn, first wire.Message)) (attaches *[]*wire.Attach) {
	attaches = new([]*wire.Attach)
	n := 0
	w.double(func(c *noiseconn.Conn, first wire.Message) {
		if a, ok := first.(*wire.Attach); ok {
			*attaches = append(*attaches, a)
		}
		if n++; n > len(circuits) {
			w.t.Errorf("circuit %d, %d are expected", n, len(circuits))
			c.Reset(wire.CodeInternal)
			return
		}
		circuits[n-1](c, first)
	})
	return attaches
}

// saying answers with Started, after a change, and with messages; then the circuit is cut.
func saying(change func(*wire.Started), messages ...wire.Message) func(*noiseconn.Conn, wire.Message) {
	return func(c *noiseconn.Conn, first wire.Message) {
		s := startedFor(first)
		if change != nil {
			change(s)
		}
		c.Send(s)
		for _, m := range messages {
			c.Send(m)
		}
		c.CloseWrite()
	}
}

func refusing(code wire.Code) func(*noiseconn.Conn, wire.Message) {
	return func(c *noiseconn.Conn, _ wire.Message) {
		c.Send(&wire.Refused{Code: code, Text: "because"})
		c.CloseWrite()
	}
}

func gap(from, to, size uint64) wire.Message {
	return &wire.GapMessage{From: from, To: to, Bytes: size}
}

func TestAnswerToAnAttachThatCannotBeTrueIsAProtocolError(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*wire.Started)
		says   []wire.Message
	}{
		{"what arrived already", nil, []wire.Message{out(2, "b"), exit(3, 0)}},
		{"everything from the beginning", nil, []wire.Message{out(1, "a"), out(2, "b"), out(3, "c"), exit(4, 0)}},
		{"a hole", nil, []wire.Message{out(4, "d"), exit(5, 0)}},
		{"an exit that leaves a hole", nil, []wire.Message{exit(4, 0)}},
		{"an exit of the past", nil, []wire.Message{exit(2, 0)}},
		{"a gap over what arrived", nil, []wire.Message{gap(2, 4, 9), exit(5, 0)}},
		{"input that was not sent", func(s *wire.Started) { s.InputOffset, s.InputLimit = 7, 20 }, []wire.Message{exit(3, 0)}},
		{"input that went back", func(s *wire.Started) { s.InputOffset = 2 }, []wire.Message{exit(3, 0)}},
		{"an InputAck for what was not sent", func(s *wire.Started) { s.InputOffset = 4 }, []wire.Message{&wire.InputAck{Offset: 7, Limit: 20}}},
		{"another exec", func(s *wire.Started) { s.ID[0]++ }, []wire.Message{exit(3, 0)}},
		{"another log with a hole", func(s *wire.Started) { s.LogEpoch = wire.ID{2} }, []wire.Message{out(2, "b"), exit(3, 0)}},
		{"another log that goes on from the number", func(s *wire.Started) { s.LogEpoch = wire.ID{2} }, []wire.Message{exit(3, 0)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.returning(func(conn *noiseconn.Conn, first wire.Message) {
					conn.Send(startedFor(first))
					if m, err := conn.Recv(); err != nil || string(m.(*wire.Input).Data) != "input" {
						t.Errorf("got %v, %v, want the input", m, err)
					}
					conn.Send(&wire.InputAck{Offset: 3, Limit: 13})
					conn.Send(out(1, "a"))
					conn.Send(out(2, "b"))
					conn.CloseWrite()
				}, saying(c.change, c.says...))
				p := w.begin("x")
				if err := p.Write(t.Context(), 0, []byte("input")); err != nil {
					t.Fatal(err)
				}
				_, err := p.Wait(t.Context())
				wantCode(t, "Wait", err, wire.CodeProtocol)
			})
		})
	}
}

func TestAttachSaysWhatArrivedInWhichLog(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		other := func(s *wire.Started) { s.LogEpoch = wire.ID{2} }
		attaches := w.returning(
			saying(nil, out(1, "a"), out(2, "b")),
			saying(nil),
			saying(nil, out(3, "c")),
			saying(other, out(1, "x"), gap(2, 5, 3)),
			saying(other, exit(6, 4)),
		)
		cmd := Environment{Backend: w.remote}.Command("x")
		var stdout bytes.Buffer
		cmd.Stdout = &stdout
		if err := cmd.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, err := cmd.Wait(t.Context())
		wantCode(t, "Wait", err, wire.CodeUnknown)
		if !status.Equal(wire.ExitStatus{Code: 4, Cause: wire.CauseExited}) || !strings.Contains(err.Error(), "missing") {
			t.Errorf("Wait: %+v, %v, want the status, and that output is missing", status, err)
		}
		if stdout.String() != "abc" {
			t.Errorf("output %q, want what came before the log was lost", stdout.String())
		}
		last := uint64(0)
		for i, want := range []struct {
			after uint64
			epoch wire.ID
		}{{2, wire.ID{1}}, {2, wire.ID{1}}, {3, wire.ID{1}}, {5, wire.ID{2}}} {
			a := (*attaches)[i]
			if a.After != want.after || a.LogEpoch == nil || *a.LogEpoch != want.epoch || !a.Control || a.ID != cmd.Process().ID() {
				t.Errorf("attach %d: %+v of log %v, want %+v", i, *a, a.LogEpoch, want)
			}
			if a.Attempt <= last || a.Instance != w.remote.instance {
				t.Errorf("attach %d has the number %d after %d", i, a.Attempt, last)
			}
			last = a.Attempt
		}
	})
}

func TestLostLogIsOneGapOfUnknownSizeAndTheExit(t *testing.T) {
	for _, cause := range []wire.Cause{wire.CauseExited, wire.CauseExecutorLost} {
		t.Run(cause.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				other := func(n byte) func(*wire.Started) { return func(s *wire.Started) { s.LogEpoch = wire.ID{n} } }
				end := wire.ExitStatus{Cause: cause}
				circuits := func() {
					w.returning(
						saying(nil, out(1, "a"), out(2, "b")),
						saying(other(2), gap(1, 7, 100), out(8, "x")),
						saying(other(3), out(1, "y"), &wire.Exit{Seq: 2, Status: end}),
					)
				}
				circuits()
				p := w.begin("x")
				var events []wire.Event
				for e, err := range p.Events(t.Context(), 0) {
					if err != nil {
						t.Fatal(err)
					}
					events = append(events, e)
				}
				if len(events) != 4 || events[2].Gap == nil || *events[2].Gap != (wire.Gap{From: 3, To: 3}) || events[3].Exit == nil || events[3].Seq != 4 {
					t.Errorf("events %+v, want two chunks, a gap of unknown size and the exit", events)
				}
				circuits()
				cmd := Environment{Backend: w.remote}.Command("x")
				if err := cmd.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				status, err := cmd.Wait(t.Context())
				wantCode(t, "Wait", err, wire.CodeUnknown)
				if want := cause == wire.CauseExited; status.Equal(end) != want || want != (status.Cause != 0) {
					t.Errorf("Wait: %+v, %v, want the status where it is known", status, err)
				}
			})
		})
	}
}

func TestFinalAnswerToAnAttachEndsTheHandleAndAnyOtherDoesNot(t *testing.T) {
	final := map[wire.Code]wire.Code{wire.CodeNotFound: wire.CodeUnknown}
	for _, code := range []wire.Code{
		wire.CodeSuperseded, wire.CodeRevoked, wire.CodeUnauthorized, wire.CodeUnknown, wire.CodePolicy, wire.CodeConflict,
		wire.CodeVersion, wire.CodeProtocol, wire.CodeBadRequest, wire.CodeUnsupported,
	} {
		final[code] = code
	}
	for code := wire.CodeInternal; code.Known(); code++ {
		t.Run(code.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				want, ends := final[code]
				circuits := []func(*noiseconn.Conn, wire.Message){saying(nil, out(1, "a")), refusing(code)}
				if !ends {
					circuits = append(circuits, refusing(code), saying(nil, exit(2, 0)))
				}
				w.returning(circuits...)
				p := w.begin("x")
				status, err := p.Wait(t.Context())
				if ends {
					wantCode(t, "Wait", err, want)
				} else if err != nil || !status.Success() {
					t.Errorf("Wait: %+v, %v, want success in the end", status, err)
				}
			})
		})
	}
}

// Whoever stands between can end a circuit with any code: that decides nothing.
func TestResetOfACircuitIsNeverFinal(t *testing.T) {
	for code := wire.CodeInternal; code.Known(); code++ {
		inWorld(t, func(t *testing.T, w *world) {
			w.returning(
				func(c *noiseconn.Conn, first wire.Message) {
					c.Send(startedFor(first))
					synctest.Wait() // a reset can overtake what was sent
					c.Reset(code)
				},
				func(c *noiseconn.Conn, _ wire.Message) { c.Reset(code) },
				func(c *noiseconn.Conn, _ wire.Message) { c.Reset(code) },
				saying(nil, exit(1, 0)),
			)
			p, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
			if err != nil {
				t.Fatalf("%v: %v", code, err)
			}
			if status, err := p.Wait(t.Context()); err != nil || !status.Success() {
				t.Errorf("%v: %+v, %v", code, status, err)
			}
		})
	}
}

// A circuit that comes back and brings nothing does not begin the patience anew.
func TestExecutorThatOnlySaysStartedIsGivenUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.double(saying(nil))
		p := w.begin("x")
		_, err := p.Wait(t.Context())
		wantLost(t, "Wait", err)
		if errors.Is(err, wire.ErrClosed) || w.clock() < DefaultPatience || w.clock() > DefaultPatience+lastPause {
			t.Errorf("Wait: %v after %v, want a loss after %v", err, w.clock(), DefaultPatience)
		}
	})
}
