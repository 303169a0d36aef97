package executor_test

import (
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func TestRequestThatWasHeldBackIsLateAndRunsNothing(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		late, inTime := g.start(command("echo", "late")), g.start(command("echo", "in time"))
		attach := g.attach(inTime.ID, 0, true)
		list := &wire.Control{Deadline: g.deadline(), Verb: wire.VerbList}
		<-time.After(wire.OpeningDeadline)
		c := g.open(inTime)
		want[*wire.Started](t, c)
		<-time.After(time.Second)
		for _, first := range []wire.Message{late, attach, list} {
			wantRefusal(t, g.open(first), wire.CodeLate)
		}
		if n := m.runner.Starts(); n != 1 {
			t.Errorf("%d commands ran, want the one that was in time", n)
		}
		// The session itself is as good as before.
		want[*wire.Started](t, g.open(g.start(command("echo"))))
	})
}

func TestFirstMessageOfChannelZeroCanBeLateToo(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		s := g.start(command("echo"))
		s.Deadline = 0
		<-time.After(5 * time.Second)
		if err := g.first.Send(s); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, g.first, wire.CodeLate)
		if m.runner.Starts() != 0 {
			t.Error("a late request ran")
		}
	})
}

// ofType is a message of a type that this build reserves for later.
type ofType struct {
	*wire.Control
	number wire.Type
}

func (o ofType) Type() wire.Type { return o.number }

func TestConversationOfAnUnknownKindIsRefusedAndTheSessionGoesOn(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		control := &wire.Control{Deadline: g.deadline(), Verb: wire.VerbList}
		for _, first := range []wire.Message{
			ofType{control, wire.TypeFiles},
			ofType{control, wire.TypeForward},
			ofType{control, wire.TypeForwardListen},
			ofType{control, 15},
			ofType{control, 200},
			&wire.Control{Deadline: g.deadline(), Verb: 99},
			&wire.Ack{Seq: 1}, &wire.Ping{}, // known, but no beginning
		} {
			wantRefusal(t, g.open(first), wire.CodeUnsupported)
		}
		want[*wire.List](t, g.open(control))
	})
}

func TestInputPastItsCreditDetachesAndDoesNotKill(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("sleep", "10m") // reads nothing
		p.Stdin = true
		c := g.open(g.start(p))
		started := want[*wire.Started](t, c)
		for sent := uint64(0); sent < started.InputLimit; sent += wire.MaxChunk {
			if err := c.Send(&wire.Input{Offset: sent, Data: make([]byte, wire.MaxChunk)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // what fits is taken: a pipe's worth is written, which gives credit that was not told yet
		var err error
		for sent := started.InputLimit; sent < 2*started.InputLimit && err == nil; sent += wire.MaxChunk {
			err = c.Send(&wire.Input{Offset: sent, Data: make([]byte, wire.MaxChunk)})
			synctest.Wait()
		}
		if wire.CodeOf(err) != wire.CodeProtocol {
			t.Errorf("the channel of a client that ignores its credit: %v, want a protocol error", err)
		}
		if m.runner.Running() != 1 {
			t.Error("the command was ended")
		}
		again := g.open(g.attach(p.ID, 0, true))
		if s := want[*wire.Started](t, again); s.Generation != 2 {
			t.Errorf("generation %d, want 2", s.Generation)
		}
	})
}

func TestRequestNumbersActOnceAlsoAfterAnAttach(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("stubborn", "1m")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		want[*wire.Output](t, c)
		send := func(number uint64, s wire.Signal) {
			t.Helper()
			if err := c.Send(&wire.SignalMessage{Request: number, Signal: s}); err != nil {
				t.Fatal(err)
			}
			for { // the line that the command prints may come first
				if d, ok := next(t, c).(*wire.Done); ok {
					if d.Request != number || d.Err() != nil {
						t.Errorf("answer %+v to request %d", d, number)
					}
					return
				}
			}
		}
		send(7, "USR1")
		send(7, "USR1")
		send(6, "USR2") // another handle of the same client may have taken 7 meanwhile
		if err := c.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		c = g.open(g.attach(p.ID, 0, true))
		want[*wire.Started](t, c)
		send(7, "USR1")
		send(8, "HUP")
		viewer, err := m.backend.As(executor.Caller{Principal: g.key.Public().String()}).Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		g.keepTalking(c)
		if got := await(t, viewer).stdout; got != "ready\nUSR1\nUSR2\nHUP\n" {
			t.Errorf("the command saw %q, want each request once", got)
		}
	})
}

// A signal can end the command, and its exit can be on its way, before the runner is back from sending it.
func TestSignalThatEndsTheCommandIsAnsweredBeforeItsExit(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		m.signalled = func() { time.Sleep(time.Second) }
		c := g.open(g.start(command("sleep", "1h")))
		want[*wire.Started](t, c)
		if err := c.Send(&wire.SignalMessage{Request: 1, Signal: "KILL"}); err != nil {
			t.Fatal(err)
		}
		if d := want[*wire.Done](t, c); d.Err() != nil {
			t.Errorf("the signal is answered with %v", d.Err())
		}
		if e := want[*wire.Exit](t, c); e.Status.Signal != "KILL" {
			t.Errorf("exit %+v", e.Status)
		}
	})
}

func TestControllerThatIsSupersededIsToldAndVoid(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("sleep", "1h")
		p.Stdin = true
		old := g.open(g.start(p))
		want[*wire.Started](t, old)
		other := *g
		other.instance = wire.ID(wire.NewExecID())
		c := other.open(other.attach(p.ID, 0, true))
		if s := want[*wire.Started](t, c); s.Generation != 2 {
			t.Errorf("generation %d, want 2", s.Generation)
		}
		if s := want[*wire.Superseded](t, old); s.Generation != 2 {
			t.Errorf("the old controller was told %+v, want generation 2", s)
		}
		if _, err := old.Recv(); err != io.EOF {
			t.Errorf("after it: %v, want the end", err)
		}
		for _, late := range []wire.Message{
			&wire.Input{Data: []byte("x")}, &wire.InputEnd{Offset: 1}, &wire.Ack{Seq: 9},
			&wire.Terminate{Request: 3}, &wire.SignalMessage{Request: 4, Signal: "KILL"},
		} {
			if old.Send(late) != nil {
				break // the executor may have closed by now, which is as good
			}
		}
		synctest.Wait()
		if m.runner.Running() != 1 {
			t.Error("a late message of the old controller ended the command")
		}
		if err := c.Send(&wire.Input{Data: []byte("y")}); err != nil {
			t.Fatal(err)
		}
		for {
			msg, err := c.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if a, ok := msg.(*wire.InputAck); ok {
				if a.Offset != 1 || a.Closed {
					t.Errorf("input of the new controller: %+v, want one byte written", a)
				}
				break
			}
		}
	})
}

func TestClientThatComesBackTakesNothingFromWhoTookOver(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		first, second := m.newGuest(), m.newGuest()
		m.admitLines("as=ci "+first.name(), "as=ci "+second.name())
		p := command("sleep", "1h")
		c := first.open(first.start(p))
		began := want[*wire.Started](t, c).Generation
		c.Reset(wire.CodeUnknown) // its link is lost
		synctest.Wait()
		back := func(g *guest, generation uint64) *noiseconn.Conn {
			a := g.attach(p.ID, 0, true)
			a.Generation = generation
			return g.open(a)
		}
		// Its own attempts whose answers were lost are no takeover.
		for range 2 {
			want[*wire.Started](t, back(first, began))
		}
		v := second.open(second.attach(p.ID, 0, true))
		taken := want[*wire.Started](t, v).Generation
		wantRefusal(t, back(first, began), wire.CodeSuperseded)
		wantRefusal(t, back(first, taken-1), wire.CodeSuperseded)
		want[*wire.Started](t, back(first, 0)) // unless it says that it means to
		want[*wire.Superseded](t, v)
	})
}

func TestAttemptThatWasOvertakenDisplacesNobody(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		s := g.start(command("sleep", "1h"))
		heldBack := g.attach(s.ID, 0, true)
		heldStart := *s
		heldStart.Attempt = 1
		current := g.attach(s.ID, 0, true)
		want[*wire.Started](t, g.open(s))
		c := g.open(current)
		want[*wire.Started](t, c)
		wantRefusal(t, g.open(heldBack), wire.CodeSuperseded)
		wantRefusal(t, g.open(&heldStart), wire.CodeSuperseded)
		if err := c.Send(&wire.SignalMessage{Request: 1, Signal: "HUP"}); err != nil {
			t.Fatal(err)
		}
		if d := want[*wire.Done](t, c); d.Err() != nil {
			t.Errorf("the current controller lost its command: %v", d.Err())
		}
		if m.runner.Starts() != 1 {
			t.Errorf("%d starts, want 1", m.runner.Starts())
		}
	})
}

func TestSlowViewerGetsAGapAndHoldsNobody(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		const size = 3 * wire.OutputKeep
		g := m.newGuest()
		r := m.runner
		ready := make(chan struct{})
		r.Handle("later", func(p *executortest.Process) int {
			<-ready
			_, err := p.Stdout.Write(executortest.Pattern(size))
			if err != nil {
				return 1
			}
			return 0
		})
		p := command("later")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		viewer := g.open(g.attach(p.ID, 0, false))
		want[*wire.Started](t, viewer)
		close(ready)
		var out []byte
		for exit := false; !exit; {
			switch msg := next(t, c).(type) {
			case *wire.Output:
				out = append(out, msg.Data...)
				if err := c.Send(&wire.Ack{Seq: msg.Seq}); err != nil {
					t.Fatal(err)
				}
			case *wire.Exit:
				exit = true
			default:
				t.Fatalf("the controller got %+v", msg)
			}
		}
		wantPattern(t, out, size)
		// Now the viewer begins to read.
		var seen, lost uint64
		for exit := false; !exit; {
			switch msg := next(t, viewer).(type) {
			case *wire.Output:
				if len(msg.Data) > 0 && string(msg.Data) != string(executortest.PatternAt(int(seen+lost), len(msg.Data))) {
					t.Fatalf("chunk %d is not what stands at byte %d", msg.Seq, seen+lost)
				}
				seen += uint64(len(msg.Data))
			case *wire.GapMessage:
				lost += msg.Bytes
			case *wire.Exit:
				exit = true
			}
		}
		if seen+lost != size || lost == 0 {
			t.Errorf("the viewer saw %d bytes and was told of %d lost, of %d", seen, lost, uint64(size))
		}
	})
}

func TestExitIsToldWithoutTheOutput(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("sleep", "1m", "words")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		for range 2 { // while it runs, and afterwards
			v := g.open(g.attach(p.ID, math.MaxUint64, false))
			want[*wire.Started](t, v)
			g.keepTalking(v)
			if exit := want[*wire.Exit](t, v); exit.Seq != 2 || exit.Status.Code != 0 {
				t.Errorf("exit %+v", exit)
			}
		}
	})
}

func TestViewerHasNoControl(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("sleep", "1h")
		p.Stdin = true
		want[*wire.Started](t, g.open(g.start(p)))
		v := g.open(g.attach(p.ID, 0, false))
		want[*wire.Started](t, v)
		for n, msg := range []wire.Message{&wire.Terminate{Request: 1}, &wire.SignalMessage{Request: 2, Signal: "KILL"}, &wire.Resize{Request: 3}} {
			if err := v.Send(msg); err != nil {
				t.Fatal(err)
			}
			if d := want[*wire.Done](t, v); d.Request != uint64(n+1) || d.Code != wire.CodePolicy {
				t.Errorf("%T of a viewer: %+v, want policy", msg, d)
			}
		}
		if m.runner.Running() != 1 {
			t.Error("a viewer ended the command")
		}
	})
}

func TestChannelThatFallsBehindOrSilentDetaches(t *testing.T) {
	for _, c := range []struct {
		name string
		talk func(*guest) wire.Message // sent every 15 s; nil: nothing
		want time.Duration
	}{
		{"pings in time", func(g *guest) wire.Message { return &wire.Ping{Clock: uint64(g.session.Clock() / time.Millisecond)} }, 0},
		{"pings a minute behind", func(g *guest) wire.Message {
			return &wire.Ping{Clock: uint64(max(0, g.session.Clock()-wire.PingLag) / time.Millisecond)}
		}, 0},
		{"pings that stand still", func(g *guest) wire.Message { return &wire.Ping{} }, 75 * time.Second},
		{"silence", nil, wire.PingSilence},
	} {
		t.Run(c.name, func(t *testing.T) {
			onMachine(t, func(t *testing.T, m *machine) {
				g := m.newGuest()
				p := command("sleep", "5m")
				conn := g.open(g.start(p))
				want[*wire.Started](t, conn)
				began := time.Now()
				if c.talk != nil {
					go func() {
						for {
							select {
							case <-time.After(wire.PingInterval):
							case <-m.ctx.Done():
								return
							}
							if conn.Send(c.talk(g)) != nil {
								return
							}
						}
					}()
				}
				var exit *wire.Exit
				var ended error
				for exit == nil {
					var msg wire.Message
					if msg, ended = conn.Recv(); ended != nil {
						break
					}
					exit, _ = msg.(*wire.Exit)
				}
				took := time.Since(began)
				if c.want == 0 {
					if exit == nil || !exit.Status.Success() {
						t.Errorf("the channel ended after %v with %+v, want the end of the command", took, exit)
					}
					return
				}
				if exit != nil || took < c.want || took > c.want+time.Second {
					t.Errorf("the channel ended after %v with %+v, want its end after %v", took, exit, c.want)
				}
				wantCode(t, "the end of the channel", ended, wire.CodeTimeout)
				if m.runner.Running() != 1 {
					t.Error("the command was ended")
				}
				synctest.Wait()
				if infos, err := m.backend.As(executor.Caller{Principal: g.key.Public().String()}).List(t.Context()); err != nil || len(infos) != 1 || infos[0].Attached {
					t.Errorf("list %+v, %v, want one detached command", infos, err)
				}
			})
		})
	}
}

func TestTooManyUnreadAnswersEndTheChannelOnly(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("flood", "100000000")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		var err error
		for n := uint64(1); n < 100_000 && err == nil; n++ { // reads nothing, asks on
			err = c.Send(&wire.SignalMessage{Request: n, Signal: "CONT"})
		}
		if wire.CodeOf(err) != wire.CodeProtocol {
			t.Errorf("requests without end: %v, want a protocol error", err)
		}
		if m.runner.Running() != 1 {
			t.Error("the command was ended")
		}
	})
}
