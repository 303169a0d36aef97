package noiseconn

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

func hopHello() *wire.HopHello {
	return &wire.HopHello{Role: wire.RoleClient, Versions: wire.Versions, Instance: wire.ID{1}}
}

// relayEnd answers the hop's handshake on t's first stream and sends first as its first record.
func relayEnd(t *testing.T, tr wire.Transport, static *keys.PrivateKey, binding []byte, first wire.Message) *Conn {
	s, err := tr.AcceptStream(t.Context())
	if err != nil {
		t.Error(err)
		return nil
	}
	p, err := Accept(t.Context(), s, ResponderConfig{Static: static, Prologue: HopPrologue(binding)})
	if err != nil {
		s.Reset(wire.CodeOf(err))
		return nil
	}
	if _, err := wire.DecodeAs[*wire.HopHello](p.Hello()); err != nil {
		t.Error(err)
	}
	c, err := p.Accept(first)
	if err != nil {
		t.Error(err)
	}
	return c
}

// join runs both sides of a hop's handshake. The relay's end has the binding given.
func join(t *testing.T, static *keys.PrivateKey, pinned keys.PublicKey, binding []byte, first wire.Message) (*Hop, *Conn, error) {
	t.Helper()
	a, b := wiretest.Transports([]byte("binding"))
	t.Cleanup(func() { a.Close(wire.CodeShutdown, "") })
	relay := make(chan *Conn, 1)
	go func() { relay <- relayEnd(t, b, static, binding, first) }()
	h, err := Join(t.Context(), a, newKey(t, keys.Client), pinned, hopHello())
	return h, <-relay, err
}

func TestJoinEndsInTheRelaysWelcomeOrItsReason(t *testing.T) {
	relay := newKey(t, keys.Relay)
	for _, c := range []struct {
		name    string
		binding string
		first   wire.Message
		code    wire.Code // zero: admitted
	}{
		{"welcome", "binding", &wire.HopWelcome{Versions: wire.Versions, Name: "c", Connection: 4}, 0},
		{"refusal", "binding", wire.Refusal(&wire.Error{Code: wire.CodeUnauthorized, Text: "not listed"}), wire.CodeUnauthorized},
		{"newer relay", "binding", &wire.HopWelcome{Versions: wire.VersionRange{Min: 2, Max: 3}}, wire.CodeVersion},
		{"no versions", "binding", &wire.HopWelcome{}, wire.CodeVersion},
		{"another message", "binding", &wire.HopPing{}, wire.CodeProtocol},
		{"another connection's binding", "another", &wire.HopWelcome{Versions: wire.Versions}, wire.CodeInternal},
	} {
		h, _, err := join(t, relay, relay.Public(), []byte(c.binding), c.first)
		if c.code == 0 {
			if err != nil || h.Welcome.Name != "c" || h.Welcome.Connection != 4 {
				t.Errorf("%s: %+v, %v", c.name, h, err)
			}
			continue
		}
		if err == nil || wire.CodeOf(err) != c.code {
			t.Errorf("%s: %v, want code %v", c.name, err, c.code)
		}
	}
}

func TestJoinRefusesATransportWithoutBinding(t *testing.T) {
	a, _ := wiretest.Transports(nil)
	defer a.Close(wire.CodeShutdown, "")
	if _, err := Join(t.Context(), a, newKey(t, keys.Client), newKey(t, keys.Relay).Public(), hopHello()); err == nil {
		t.Error("joined")
	}
}

func TestJoinNamesTheKeyThatTheRelayDoesNotHave(t *testing.T) {
	a, b := wiretest.Transports([]byte("binding"))
	defer a.Close(wire.CodeShutdown, "")
	pinned, other := newKey(t, keys.Relay), newKey(t, keys.Relay)
	go func() { // answers although it cannot read the first message
		s, err := b.AcceptStream(t.Context())
		if err != nil {
			return
		}
		m1 := receiveFrame(t, s, []byte{1})
		r := refResponder(t, HopPrologue([]byte("binding")), other)
		r.receiveEphemeral(m1[:32])
		r.mixKey(agree(r.static, r.peerEphemeral))
		m2 := r.sendEphemeral()
		r.mixKey(agree(r.ephemeral, r.peerEphemeral))
		sendFrame(t, s, []byte{1}, append(m2, r.encrypt(make([]byte, 1088+16))...))
	}()
	_, err := Join(t.Context(), a, newKey(t, keys.Client), pinned.Public(), hopHello())
	if !errors.Is(err, errHandshake) || !strings.Contains(err.Error(), pinned.Public().String()) {
		t.Errorf("Join = %v, want an error that names %v", err, pinned.Public())
	}
}

// joined is a hop inside a synctest bubble.
func joined(t *testing.T) (*Hop, *Conn) {
	relay := newKey(t, keys.Relay)
	h, c, err := join(t, relay, relay.Public(), []byte("binding"), &wire.HopWelcome{Versions: wire.Versions})
	if err != nil || c == nil {
		t.Fatalf("join: %v", err)
	}
	return h, c
}

func TestHeartbeatsGoOnWhileTheyAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, relay := joined(t)
		ctx, cancel := context.WithCancelCause(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx, 10*time.Second) }()
		last := time.Now()
		for number := uint64(1); number <= 20; number++ {
			m, err := relay.Recv()
			ping, ok := m.(*wire.HopPing)
			if err != nil || !ok || ping.Number != number {
				t.Fatalf("heartbeat %d: %+v, %v", number, m, err)
			}
			if wait := time.Since(last); wait < 9*time.Second || wait > 11*time.Second {
				t.Errorf("heartbeat %d after %v, want 10s give or take a tenth", number, wait)
			}
			last = time.Now()
			if err := relay.Send(&wire.HopPong{Number: number}); err != nil {
				t.Fatal(err)
			}
		}
		reason := errors.New("enough")
		cancel(reason)
		if err := <-ended; !errors.Is(err, reason) {
			t.Errorf("Run = %v, want the context's cause", err)
		}
	})
}

func TestUnansweredHeartbeatsEndTheHop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := joined(t)
		start := time.Now()
		if err := h.Run(t.Context(), 10*time.Second); !errors.Is(err, wire.ErrLost) {
			t.Errorf("Run = %v, want wire.ErrLost", err)
		}
		if took := time.Since(start); took < 36*time.Second || took > 44*time.Second {
			t.Errorf("ended after %v, want four heartbeats", took)
		}
	})
}

func TestHopAnswersTheRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, relay := joined(t)
		ended := make(chan error, 1)
		go func() { ended <- h.Run(t.Context(), time.Hour) }()
		if err := relay.Send(&wire.HopPing{Number: 77}); err != nil {
			t.Fatal(err)
		}
		m, err := relay.Recv()
		if pong, ok := m.(*wire.HopPong); err != nil || !ok || pong.Number != 77 {
			t.Fatalf("answer: %+v, %v", m, err)
		}
		if err := relay.Send(wire.Refusal(&wire.Error{Code: wire.CodeSuperseded})); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; wire.CodeOf(err) != wire.CodeSuperseded {
			t.Errorf("Run = %v, want the relay's reason", err)
		}
	})
}

func TestNoticeOfTheRelayHasNoEffectOnTheHop(t *testing.T) {
	for _, heard := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			h, relay := joined(t)
			var told []wire.HopNotice
			if heard {
				h.Notice = func(n wire.HopNotice) { told = append(told, n) }
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- h.Run(ctx, time.Hour) }()
			for _, m := range []wire.Message{
				&wire.HopNotice{Code: wire.CodeDuplicate, Text: "another machine has this key"},
				&wire.HopNotice{Code: 999}, &wire.HopPing{Number: 5},
			} {
				if err := relay.Send(m); err != nil {
					t.Fatal(err)
				}
			}
			m, err := relay.Recv()
			if pong, ok := m.(*wire.HopPong); err != nil || !ok || pong.Number != 5 {
				t.Fatalf("after a notice: %+v, %v, want the answer to a heartbeat", m, err)
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("Run = %v", err)
			}
			if heard && (len(told) != 2 || told[0].Code != wire.CodeDuplicate || told[0].Text == "" || told[1].Code != 999) {
				t.Errorf("told %+v, want both notices in order", told)
			}
		})
	}
}

func TestHopEndsWithItsControlStreamOrConnection(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(h *Hop, relay *Conn) error
		want wire.Code
	}{
		{"FIN", func(_ *Hop, relay *Conn) error {
			relay.CloseWrite() // fails when the hop is faster and has ended the stream already
			return nil
		}, wire.CodeShutdown},
		{"reset", func(_ *Hop, relay *Conn) error { relay.Reset(wire.CodeLimit); return nil }, wire.CodeLimit},
		{"connection closed", func(h *Hop, _ *Conn) error { return h.Transport.Close(wire.CodeRevoked, "") }, wire.CodeRevoked},
		{"message out of place", func(_ *Hop, relay *Conn) error {
			return relay.Send(&wire.Started{
				ID: wire.ExecID{1}, LogEpoch: wire.ID{1}, Window: 1, Sandbox: wire.SandboxReadOnly,
			})
		}, wire.CodeProtocol},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, relay := joined(t)
				ended := make(chan error, 1)
				go func() { ended <- h.Run(t.Context(), time.Hour) }()
				synctest.Wait()
				if err := c.end(h, relay); err != nil {
					t.Fatal(err)
				}
				if err := <-ended; wire.CodeOf(err) != c.want {
					t.Errorf("Run = %v, want code %v", err, c.want)
				}
				// Run has ended the stream.
				if _, err := relay.Recv(); err == nil || err == io.EOF {
					t.Errorf("the relay reads %v, want an error that is no end", err)
				}
			})
		})
	}
}
