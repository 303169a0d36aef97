package relay_test

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

// memory is a relay that is reached in memory.
type memory struct {
	*relaytest.Relay
	listener *relaytest.Listener
}

func inMemory(t *testing.T, limits relay.Limits) memory {
	t.Helper()
	l := relaytest.NewListener()
	return memory{relaytest.Serve(t, l, limits), l}
}

// dial connects without a word.
func (m memory) dial(t *testing.T) wire.Transport {
	t.Helper()
	tr, err := m.listener.Dial(t.Context(), []byte("binding"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(wire.CodeShutdown, "test is over") })
	return tr
}

// hello is what a peer says of itself, with everything right.
func hello(key *keys.PrivateKey) *wire.HopHello {
	role := wire.RoleClient
	if key.Kind() == keys.Executor {
		role = wire.RoleExecutor
	}
	h := &wire.HopHello{Role: role, Versions: wire.Versions}
	_, _ = rand.Read(h.Instance[:]) // never fails
	return h
}

// peer is an admitted one.
type peer struct {
	wire.Transport
	t       *testing.T
	key     *keys.PrivateKey
	control *noiseconn.Conn
	welcome *wire.HopWelcome
}

// shake runs the hop handshake on a transport; relayKey is what the peer pins.
func shake(ctx context.Context, tr wire.Transport, relayKey keys.PublicKey, key *keys.PrivateKey, h *wire.HopHello) (*noiseconn.Conn, *wire.HopWelcome, error) {
	s, err := tr.OpenStream(ctx)
	if err != nil {
		return nil, nil, err
	}
	i, err := noiseconn.Dial(ctx, s, noiseconn.InitiatorConfig{
		Static: key, Peer: relayKey.Raw(), Prologue: noiseconn.HopPrologue(tr.Binding()),
	})
	if err != nil {
		return nil, nil, err
	}
	control, err := i.Finish(h)
	if err != nil {
		return nil, nil, err
	}
	m, err := control.Recv()
	if err != nil {
		return nil, nil, err
	}
	switch m := m.(type) {
	case *wire.HopWelcome:
		return control, m, nil
	case *wire.Refused:
		return control, nil, m.Err()
	}
	return nil, nil, errors.New("first record is neither welcome nor refusal")
}

// join makes tr an admitted peer, which answers nothing yet.
func join(t *testing.T, tr wire.Transport, r *relaytest.Relay, key *keys.PrivateKey, h *wire.HopHello) *peer {
	t.Helper()
	return joinBy(t, func() wire.Transport { return tr }, r, key, h)
}

// joinBy is join over what dial gives, again where the relay waited in vain: this machine may be held up in a handshake.
func joinBy(t *testing.T, dial func() wire.Transport, r *relaytest.Relay, key *keys.PrivateKey, h *wire.HopHello) *peer {
	t.Helper()
	for tries := 1; ; tries++ {
		tr := dial()
		control, welcome, err := shake(t.Context(), tr, r.Key.Public(), key, h)
		switch {
		case err == nil:
			return &peer{Transport: tr, t: t, key: key, control: control, welcome: welcome}
		case tries == 5 || wire.CodeOf(err) != wire.CodeTimeout && !errors.Is(err, wire.ErrLost):
			t.Fatalf("handshake: %v", err)
		}
	}
}

func (m memory) join(t *testing.T, key *keys.PrivateKey, h *wire.HopHello) *peer {
	t.Helper()
	return joinBy(t, func() wire.Transport { return m.dial(t) }, m.Relay, key, h)
}

func (m memory) newPeer(t *testing.T, kind keys.Kind) *peer {
	t.Helper()
	key := m.NewPeer(kind)
	return m.join(t, key, hello(key))
}

// answer answers pings until the connection ends.
func (p *peer) answer() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			m, err := p.control.Recv()
			if err != nil {
				return
			}
			if ping, ok := m.(*wire.HopPing); ok {
				_ = p.control.Send(&wire.HopPong{Number: ping.Number})
			}
		}
	}()
	p.t.Cleanup(func() {
		_ = p.Close(wire.CodeShutdown, "test is over")
		<-done
	})
}

// ask opens a stream and sends a Dial.
func (p *peer) ask(executor keys.PublicKey) wire.Stream {
	p.t.Helper()
	s, err := p.OpenStream(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	if err := wire.WriteFrame(s, &wire.Dial{Executor: executor.Raw()}); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// reply reads the answer to a Dial.
func (p *peer) reply(s wire.Stream) *wire.DialReply {
	p.t.Helper()
	m, err := wire.ReadFrame(s)
	if err != nil {
		p.t.Fatalf("dial reply: %v", err)
	}
	r, ok := m.(*wire.DialReply)
	if !ok {
		p.t.Fatalf("got a %T, want a dial reply", m)
	}
	return r
}

// incoming accepts a circuit on an executor.
func (p *peer) incoming() (wire.Stream, *wire.Incoming) {
	p.t.Helper()
	s, err := p.AcceptStream(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	m, err := wire.ReadFrame(s)
	if err != nil {
		p.t.Fatal(err)
	}
	in, ok := m.(*wire.Incoming)
	if !ok {
		p.t.Fatalf("got a %T, want an incoming", m)
	}
	return s, in
}

// circuit joins a client's stream and an executor's.
func circuit(t *testing.T, client, executor *peer) (c, e wire.Stream) {
	t.Helper()
	c = client.ask(executor.key.Public())
	if r := client.reply(c); r.Err() != nil {
		t.Fatalf("dial: %v", r.Err())
	}
	e, _ = executor.incoming()
	return c, e
}

// ended waits for the end of a connection and returns the code of its cause.
func ended(t *testing.T, tr wire.Transport) wire.Code {
	t.Helper()
	<-tr.Context().Done()
	return wire.CodeOf(context.Cause(tr.Context()))
}

func wantCode(t *testing.T, what string, got, want wire.Code) {
	t.Helper()
	if got != want {
		t.Errorf("%s: code %v, want %v", what, got, want)
	}
}

func readAll(t *testing.T, s io.Reader) string {
	t.Helper()
	b, err := io.ReadAll(s)
	if err != nil {
		t.Fatalf("read %q, then %v, want a clean end", b, err)
	}
	return string(b)
}

func readErr(s io.Reader) error {
	_, err := io.Copy(io.Discard, s)
	return err
}

// writeErr writes until it fails.
func writeErr(s io.Writer) error {
	for b := make([]byte, 1<<10); ; {
		if _, err := s.Write(b); err != nil {
			return err
		}
	}
}

func say(t *testing.T, s io.Writer, text string) {
	t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatal(err)
	}
}

func hear(t *testing.T, s io.Reader, want string) {
	t.Helper()
	b := make([]byte, len(want))
	if _, err := io.ReadFull(s, b); err != nil || string(b) != want {
		t.Fatalf("read %q, %v, want %q", b, err, want)
	}
}

// value is one sample of the relay's metrics; labels are its label values in order.
func value(t *testing.T, r *relaytest.Relay, name string, labels ...string) float64 {
	t.Helper()
	families, err := r.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "postern_relay_"+name {
			continue
		}
	metrics:
		for _, m := range f.GetMetric() {
			for i, l := range m.GetLabel() { // sorted by name
				if i >= len(labels) || l.GetValue() != labels[i] {
					continue metrics
				}
			}
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("no metric postern_relay_%s%q", name, labels)
	return 0
}
