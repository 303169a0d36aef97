package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// double answers circuits in the executor's place, with its key: it admits the client and then
// does what the test says, which gets the first message.
func (w *world) double(talk func(c *noiseconn.Conn, first wire.Message)) {
	w.doubleOf(func() wire.ID { return wire.ID{} }, talk)
}

// doubleOf is double with a state epoch for each handshake.
func (w *world) doubleOf(epoch func() wire.ID, talk func(c *noiseconn.Conn, first wire.Message)) {
	w.set(func() {
		w.serve = func(s wire.Stream) {
			cfg := noiseconn.ResponderConfig{Static: w.it, Prologue: noiseconn.EndToEndPrologue(), Epoch: epoch(), Clock: w.clock}
			in, err := noiseconn.AcceptAny(w.ctx, s, cfg, func(wire.ID) *noiseconn.Session { return nil })
			if err != nil {
				s.Reset(wire.CodeOf(err))
				return
			}
			welcome := &wire.Welcome{
				Versions: wire.Versions, Session: wire.ID(wire.NewExecID()),
				Limits: wire.SessionLimits{Message: wire.MaxMessage, Window: wire.OutputWindow, Sandbox: 1},
			}
			rand.Read(welcome.Random[:])
			c, err := in.Pending.Accept(welcome)
			if err != nil {
				s.Reset(wire.CodeOf(err))
				return
			}
			stop := context.AfterFunc(w.ctx, func() { s.Reset(wire.CodeShutdown) })
			defer stop()
			first, err := c.Recv()
			if err != nil {
				return
			}
			talk(c, first)
			for { // until the client has gone
				if _, err := c.Recv(); err != nil {
					s.Reset(wire.CodeCancelled)
					return
				}
			}
		}
	})
}

func startedFor(first wire.Message) *wire.Started {
	s := &wire.Started{LogEpoch: wire.ID{1}, Generation: 1, Window: wire.OutputWindow, Sandbox: wire.SandboxReadOnly, InputLimit: 10}
	switch first := first.(type) {
	case *wire.Start:
		s.ID = first.ID
	case *wire.Attach:
		s.ID = first.ID
	}
	return s
}

func out(seq uint64, text string) wire.Message {
	return &wire.Output{Seq: seq, Stream: wire.Stdout, Data: []byte(text)}
}

func exit(seq uint64, code int) wire.Message {
	return &wire.Exit{Seq: seq, Status: wire.ExitStatus{Code: code, Cause: wire.CauseExited}}
}

// ofType is a message of a type that this build does not know.
type ofType struct {
	*wire.Control
	number wire.Type
}

func (o ofType) Type() wire.Type { return o.number }

func TestHostileExecutorGetsNoWrongResultAccepted(t *testing.T) {
	strange := ofType{&wire.Control{Verb: 1}, 201}
	for _, c := range []struct {
		name string
		says []wire.Message
		fin  bool // ends cleanly afterwards; else it stays silent
		want string
		code int       // of the command
		err  wire.Code // instead
	}{
		{"what an honest one says", []wire.Message{out(1, "a"), exit(2, 3)}, true, "a", 3, 0},
		{"exits twice", []wire.Message{out(1, "a"), exit(2, 3), exit(3, 0)}, true, "a", 3, 0},
		{"output after the exit", []wire.Message{out(1, "a"), exit(2, 3), out(3, "b")}, true, "a", 3, 0},
		{"no end after the exit", []wire.Message{out(1, "a"), exit(2, 3)}, false, "a", 3, 0},
		{"unknown messages", []wire.Message{strange, out(1, "a"), strange, strange, exit(2, 3)}, true, "a", 3, 0},
		{"answers nobody asked for", []wire.Message{&wire.Done{Request: 99}, &wire.Done{Request: 99, Code: 4}, exit(1, 3)}, true, "", 3, 0},
		{"an exit with a hole before it", []wire.Message{out(1, "a"), exit(9, 0)}, true, "a", 0, wire.CodeProtocol},
		{"an exit with a number of the past", []wire.Message{out(1, "a"), exit(1, 0)}, true, "a", 0, wire.CodeProtocol},
		{"output that is repeated", []wire.Message{out(1, "a"), out(1, "a"), exit(2, 0)}, true, "a", 0, wire.CodeProtocol},
		{"output that leaves a hole", []wire.Message{out(1, "a"), out(3, "c"), exit(4, 0)}, true, "a", 0, wire.CodeProtocol},
		{"a gap over what came", []wire.Message{out(1, "a"), &wire.GapMessage{From: 1, To: 5}, exit(6, 0)}, true, "a", 0, wire.CodeProtocol},
		{"no exit", []wire.Message{out(1, "a")}, true, "a", 0, wire.CodeUnknown},
		{"silence", []wire.Message{out(1, "a")}, false, "a", 0, wire.CodeUnknown},
		{"a ping from long ago", []wire.Message{&wire.Ping{}}, false, "", 0, wire.CodeUnknown},
		{"a client's message", []wire.Message{&wire.Terminate{Request: 1}}, false, "", 0, wire.CodeProtocol},
		{"a second beginning", []wire.Message{out(1, "a"), &wire.Started{ID: wire.ExecID{1}, LogEpoch: wire.ID{2}, Window: 1, Sandbox: 1}, exit(2, 0)}, true, "a", 0, wire.CodeProtocol},
		{"a refusal in the middle", []wire.Message{out(1, "a"), &wire.Refused{Code: wire.CodeRevoked}}, true, "a", 0, wire.CodeRevoked},
		{"superseded", []wire.Message{&wire.Superseded{Generation: 2}}, true, "", 0, wire.CodeSuperseded},
	} {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.impatient()
				w.double(func(conn *noiseconn.Conn, first wire.Message) {
					conn.Send(startedFor(first))
					for _, m := range c.says {
						if conn.Send(m) != nil {
							return
						}
					}
					if c.fin {
						conn.CloseWrite()
					}
				})
				if c.name == "a ping from long ago" {
					w.double(func(conn *noiseconn.Conn, first wire.Message) {
						conn.Send(startedFor(first))
						for range 6 { // it does not fall silent, but its clock stands still
							<-time.After(wire.PingInterval)
							conn.Send(&wire.Ping{})
						}
						conn.Send(exit(1, 0))
					})
				}
				var stdout bytes.Buffer
				cmd := Environment{Backend: w.remote}.Command("x")
				cmd.Stdout = &stdout
				if err := cmd.Start(t.Context()); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				status, err := cmd.Wait(t.Context())
				if stdout.String() != c.want {
					t.Errorf("output %q, want %q", stdout.String(), c.want)
				}
				if c.err != 0 {
					wantCode(t, "Wait", err, c.err)
				} else if err != nil || status.Code != c.code {
					t.Errorf("Wait: %+v, %v, want code %d", status, err, c.code)
				}
				if c.name == "silence" && time.Since(began) != wire.PingSilence {
					t.Errorf("silence was noticed after %v, want %v", time.Since(began), wire.PingSilence)
				}
			})
		})
	}
}

// An executor that keeps no window can send as fast as it likes: the client stops reading.
func TestHostileExecutorCannotFillTheClientsMemory(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		sent := make(chan int, 1)
		w.double(func(conn *noiseconn.Conn, first wire.Message) {
			conn.Send(startedFor(first))
			data := make([]byte, wire.MaxChunk)
			n := 0
			for seq := uint64(1); ; seq++ {
				if conn.Send(&wire.Output{Seq: seq, Stream: wire.Stdout, Data: data}) != nil {
					sent <- n
					return
				}
				n += len(data)
			}
		})
		p := w.begin("x")
		synctest.Wait()
		held := p.(*RemoteProcess).output.size
		if most := 2*wire.OutputWindow + wire.MaxChunk + 64; held > most || held < wire.OutputWindow {
			t.Errorf("%d bytes are held for a reader that reads nothing, want at most %d", held, most)
		}
		p.Close() // must not wait for an executor that never stops
		if n := <-sent; n > 3*wire.OutputWindow {
			t.Errorf("the executor could send %d bytes", n)
		}
	})
}

func TestExecutorsAnswerToAStartDecides(t *testing.T) {
	for code := wire.CodeInternal; code.Known(); code++ {
		if code == wire.CodeNoChannel || code == wire.CodeLate {
			continue // these make the client try once more: see the tests of the session
		}
		t.Run(code.String(), func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.double(func(conn *noiseconn.Conn, _ wire.Message) {
					conn.Send(&wire.Refused{Code: code, Text: "because", RetryMillis: 7000})
					conn.CloseWrite()
				})
				_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
				e, ok := errors.AsType[*wire.Error](err)
				if !ok || e.Code != code || e.Text != "because" || e.RetryAfter != 7*time.Second {
					t.Errorf("start: %#v, want the executor's words", err)
				}
			})
		})
	}
	for name, answer := range map[string]wire.Message{"a list": &wire.List{}, "output": out(1, "x"), "a ping": &wire.Ping{}} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.double(func(conn *noiseconn.Conn, _ wire.Message) { conn.Send(answer) })
				_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"x"}})
				wantCode(t, "start", err, wire.CodeProtocol)
			})
		})
	}
}

func TestOtherExecutorThanThePinnedOneIsNamedAndGetsNothing(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		pinned := w.it.Public().String()
		w.it = newKey(t, "exec")
		w.restart() // a relay sends the client to another executor, which would admit it
		_, err := w.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"echo"}})
		if err == nil || !bytes.Contains([]byte(err.Error()), []byte(pinned)) || errors.Is(err, wire.ErrLost) {
			t.Errorf("start: %v, want an error that names %s", err, pinned)
		}
		if w.runner.Starts() != 0 {
			t.Error("the wrong executor ran the command")
		}
	})
}

func TestExecutorThatTakesNoSignalDoesNotHoldItsCaller(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.impatient()
		w.double(func(conn *noiseconn.Conn, first wire.Message) { conn.Send(startedFor(first)) })
		p := w.begin("x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Signal(ctx, "INT"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Signal: %v, want the deadline of its context", err)
		}
		if err := p.Write(ctx, 0, make([]byte, 20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Write past the credit: %v, want the deadline of its context", err)
		}
		_, err := p.Read(t.Context(), wire.ReadRequest{Wait: time.Hour})
		wantLost(t, "Read", err)
		wantLost(t, "Signal on a lost circuit", p.Signal(t.Context(), "INT"))
	})
}
