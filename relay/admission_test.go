package relay_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func generate(t *testing.T, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	key, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestAdmissionMatrix(t *testing.T) {
	client, executor := generate(t, keys.Client), generate(t, keys.Executor)
	as := func(key *keys.PrivateKey, edit func(*wire.HopHello)) *wire.HopHello {
		h := hello(key)
		edit(h)
		return h
	}
	unknown := generate(t, keys.Client)
	newer := func(h *wire.HopHello) { h.Versions = wire.VersionRange{Min: wire.Version + 1, Max: wire.Version + 3} }
	cases := []struct {
		name string
		key  *keys.PrivateKey
		h    *wire.HopHello
		want wire.Code // zero: admitted
	}{
		{"listed client", client, hello(client), 0},
		{"listed executor", executor, hello(executor), 0},
		{"unlisted client", unknown, hello(unknown), wire.CodeUnauthorized},
		{"client key as executor", client, as(client, func(h *wire.HopHello) { h.Role = wire.RoleExecutor }), wire.CodeUnauthorized},
		{"executor key as client", executor, as(executor, func(h *wire.HopHello) { h.Role = wire.RoleClient }), wire.CodeUnauthorized},
		{"newer client", client, as(client, newer), wire.CodeVersion},
		{"unlisted newer client", unknown, as(unknown, newer), wire.CodeVersion},
		{"downgraded client", client, as(client, func(h *wire.HopHello) { h.Versions = wire.VersionRange{} }), wire.CodeVersion},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, relay.Limits{})
				r.Allow(client.Public())
				r.Allow(executor.Public())
				tr := r.dial(t)
				_, welcome, err := shake(t.Context(), tr, r.Key.Public(), c.key, c.h)
				if c.want == 0 {
					if err != nil {
						t.Fatal(err)
					}
					if welcome.Versions != wire.Versions || welcome.Connection == 0 || welcome.Name == "" || welcome.Limits.Header != wire.MaxHeader ||
						(welcome.Generation != 0) != (c.key == executor) || (welcome.Limits.Circuits != 0) != (c.key == client) {
						t.Errorf("welcome %+v", welcome)
					}
					return
				}
				if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != c.want || e.Text == "" {
					t.Errorf("refused with %v, want code %v and a text", err, c.want)
				}
				wantCode(t, "close", ended(t, tr), c.want)
			})
		})
	}
}

func TestBrokenHandshakesEndTheConnection(t *testing.T) {
	client := generate(t, keys.Client)
	raw := func(b ...byte) func(*testing.T, memory, wire.Transport) {
		return func(t *testing.T, _ memory, tr wire.Transport) {
			s, err := tr.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(b); err != nil {
				t.Fatal(err)
			}
		}
	}
	garbage := append([]byte{wire.Version, 0x04, 0xd0}, make([]byte, 1232)...)
	cases := []struct {
		name string
		do   func(*testing.T, memory, wire.Transport)
		want wire.Code
	}{
		{"m1 of zeros", raw(garbage...), wire.CodeProtocol},
		{"m1 too long", raw(wire.Version, 0xff, 0xff), wire.CodeProtocol},
		{"m1 too short", raw(wire.Version, 0, 16), wire.CodeProtocol},
		{"another version", raw(99), wire.CodeVersion},
		{"another relay's key", func(t *testing.T, r memory, tr wire.Transport) {
			if _, _, err := shake(t.Context(), tr, generate(t, keys.Relay).Public(), client, hello(client)); err == nil {
				t.Error("relay proved a key that it does not have")
			}
		}, wire.CodeProtocol},
		{"another binding", func(t *testing.T, r memory, tr wire.Transport) {
			if _, _, err := shake(t.Context(), otherBinding{tr}, r.Key.Public(), client, hello(client)); err == nil {
				t.Error("handshake over another connection's binding succeeded")
			}
		}, wire.CodeProtocol},
		{"end before m3", func(t *testing.T, r memory, tr wire.Transport) {
			s, err := tr.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			cfg := noiseconn.InitiatorConfig{Static: client, Peer: r.Key.Public().Raw(), Prologue: noiseconn.HopPrologue(tr.Binding())}
			if _, err := noiseconn.Dial(t.Context(), s, cfg); err != nil {
				t.Fatal(err)
			}
			if err := s.CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}, wire.CodeProtocol},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, relay.Limits{})
				r.Allow(client.Public())
				tr := r.dial(t)
				start := time.Now()
				c.do(t, r, tr)
				wantCode(t, "close", ended(t, tr), c.want)
				if took := time.Since(start); took > wire.HopTimeout {
					t.Errorf("closed after %v, want %v at most", took, wire.HopTimeout)
				}
			})
		})
	}
}

// otherBinding is a transport whose dialling side sees another channel binding.
type otherBinding struct{ wire.Transport }

func (otherBinding) Binding() []byte { return []byte("another") }

func TestStrangerHasFiveSecondsForItsHandshake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{Handshakes: 2})
		start := time.Now()
		silent, slow := r.dial(t), r.dial(t)
		s, err := slow.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte{wire.Version}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		wantCode(t, "a third one meanwhile", ended(t, r.dial(t)), wire.CodeBusy)
		if time.Since(start) != 0 {
			t.Errorf("busy came after %v, want at once", time.Since(start))
		}
		wantCode(t, "silent", ended(t, silent), wire.CodeTimeout)
		wantCode(t, "slow", ended(t, slow), wire.CodeTimeout)
		if took := time.Since(start); took != wire.HopTimeout {
			t.Errorf("closed after %v, want %v", took, wire.HopTimeout)
		}
		synctest.Wait()
		r.newPeer(t, keys.Client) // the slots are free again
		synctest.Wait()
		if n := value(t, r.Relay, "handshakes_in_flight"); n != 0 {
			t.Errorf("%v handshakes in flight, want none", n)
		}
		if n := value(t, r.Relay, "handshakes_total", "timeout", "unknown"); n != 2 {
			t.Errorf("%v handshakes counted as timeout, want 2", n)
		}
	})
}

func TestNothingIsServedBeforeTheKeyIsAdmitted(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor := r.newPeer(t, keys.Executor)
	stranger := r.dial(t)
	// The handshake's stream comes first, then dials that do not wait for it.
	key := generate(t, keys.Client)
	first, err := stranger.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		(&peer{Transport: stranger, t: t}).ask(executor.key.Public())
	}
	i, err := noiseconn.Dial(t.Context(), first, noiseconn.InitiatorConfig{
		Static: key, Peer: r.Key.Public().Raw(), Prologue: noiseconn.HopPrologue(stranger.Binding()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.Finish(hello(key)); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "close", ended(t, stranger), wire.CodeUnauthorized)
	honest := r.newPeer(t, keys.Client)
	honest.ask(executor.key.Public())
	if _, in := executor.incoming(); in.Client != honest.key.Public().Raw() {
		t.Error("the executor's first circuit is not that of the admitted client")
	}
}

func TestRemovedKeyLosesItsConnectionsAndCircuits(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client, other := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client), r.newPeer(t, keys.Client)
	_, e := circuit(t, client, executor)
	second := r.join(t, client.key, hello(client.key))
	r.Remove(client.key.Public())
	for _, p := range []*peer{client, second} {
		wantCode(t, "close", ended(t, p), wire.CodeUnauthorized)
	}
	// What became of the client is none of the executor's business.
	wantCode(t, "executor's stream", wire.CodeOf(readErr(e)), wire.CodeUnknown)
	if _, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), client.key, hello(client.key)); wire.CodeOf(err) != wire.CodeUnauthorized {
		t.Errorf("removed key comes back: %v", err)
	}
	circuit(t, other, executor)
}

func TestKeyHasABoundedNumberOfConnections(t *testing.T) {
	r := inMemory(t, relay.Limits{ClientConnections: 2})
	key := r.NewPeer(keys.Client)
	first := r.join(t, key, hello(key))
	r.join(t, key, hello(key))
	_, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), key, hello(key))
	for range 10 { // the relay waits a second for the refusal to be read, and then closes
		if !errors.Is(err, wire.ErrLost) {
			break
		}
		_, _, err = shake(t.Context(), r.dial(t), r.Key.Public(), key, hello(key))
	}
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeBusy || e.RetryAfter <= 0 {
		t.Errorf("third connection: %v, want busy with a retry-after", err)
	}
	r.newPeer(t, keys.Client) // others are not concerned
	if err := first.Close(wire.CodeShutdown, "done"); err != nil {
		t.Fatal(err)
	}
	// The relay notices in its own time; a busy answer says to try again.
	for {
		_, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), key, hello(key))
		if err == nil {
			return
		}
		if wire.CodeOf(err) != wire.CodeBusy {
			t.Fatal(err)
		}
	}
}

func TestShutdownTellsEveryPeerAndWaits(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
	stranger := r.dial(t)
	c, e := circuit(t, client, executor)
	r.Stop()
	for _, tr := range []wire.Transport{executor, client, stranger} {
		if tr.Context().Err() == nil {
			t.Error("a connection outlives the relay")
		}
		wantCode(t, "close", ended(t, tr), wire.CodeShutdown)
	}
	for _, s := range []wire.Stream{c, e} {
		if err := readErr(s); err == nil {
			t.Error("a circuit cut by shutdown ended cleanly")
		}
	}
	if _, err := r.listener.Dial(t.Context(), nil); err == nil {
		t.Error("listener is still open")
	}
}

func TestControlStreamAnswersPingsAndNothingElse(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	client := r.newPeer(t, keys.Client)
	for n := range uint64(3) {
		if err := client.control.Send(&wire.HopPing{Number: n}); err != nil {
			t.Fatal(err)
		}
		m, err := client.control.Recv()
		if pong, ok := m.(*wire.HopPong); !ok || pong.Number != n {
			t.Fatalf("got %#v, %v, want pong %d", m, err, n)
		}
	}
	if err := client.control.Send(&wire.HopPong{Number: 7}); err != nil { // of no ping: ignored
		t.Fatal(err)
	}
	if err := client.control.Send(&wire.Dial{Executor: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "close", ended(t, client), wire.CodeProtocol)

	leaving := r.newPeer(t, keys.Client)
	if err := leaving.control.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantCode(t, "close after the end of the control stream", ended(t, leaving), wire.CodeShutdown)
}

func TestNewRefusesWhatIsMissing(t *testing.T) {
	empty := relaytest.Serve(t, relaytest.NewListener(), relay.Limits{}).Roster()
	one := func(kind keys.Kind) func() (current, next *keys.PrivateKey) {
		key := generate(t, kind)
		return func() (current, next *keys.PrivateKey) { return key, nil }
	}
	for name, cfg := range map[string]relay.Config{
		"nothing":           {},
		"no roster":         {Keys: one(keys.Relay)},
		"a client's key":    {Keys: one(keys.Client), Roster: empty},
		"no key but roster": {Roster: empty},
	} {
		if _, err := relay.New(cfg); err == nil {
			t.Errorf("New with %s succeeded", name)
		}
	}
	s, err := relay.New(relay.Config{Keys: one(keys.Relay), Roster: empty})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Serve(t.Context(), failing{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("Serve: %v, want the listener's error", err)
	}
}

type failing struct{}

func (failing) Accept(context.Context) (wire.Transport, error) { return nil, io.ErrNoProgress }
func (failing) Close() error                                   { return nil }
