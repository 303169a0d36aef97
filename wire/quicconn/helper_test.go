package quicconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

func TestMain(m *testing.M) { wiretest.RunWithoutLeaks(m) }

// loopback is a connection over loopback, from an executor as default.
func loopback(t *testing.T, o ListenOptions, d Options) (dialled, accepted *Conn) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return connect(t, l, func() (*Conn, error) { return Dial(t.Context(), l.Addr().String(), d) })
}

func connect(t *testing.T, l *Listener, dial func() (*Conn, error)) (dialled, accepted *Conn) {
	t.Helper()
	got := make(chan *Conn, 1)
	go func() {
		defer close(got)
		if c, err := l.Accept(t.Context()); err == nil {
			got <- c.(*Conn)
		}
	}()
	for range 5 {
		dialled, err := patient(dial)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = dialled.Close(wire.CodeShutdown, "test is over") })
		select {
		case accepted = <-got:
			if accepted == nil {
				t.Fatal("listener accepted nothing")
			}
			t.Cleanup(func() { _ = accepted.Close(wire.CodeShutdown, "test is over") })
			return dialled, accepted
		case <-dialled.Context().Done(): // the listener waited in vain for the end of its handshake
		}
	}
	t.Fatal("no connection lasts until it is accepted")
	return nil, nil
}

// patient dials as all peers do, again when nothing came back: a machine that runs many tests at once may be silent for longer
// than one dial waits.
func patient(dial func() (*Conn, error)) (c *Conn, err error) {
	for range 5 {
		if c, err = dial(); !errors.Is(err, ErrNoAnswer) {
			return c, err
		}
	}
	return nil, err
}

// openPair opens a stream on a and accepts it on b.
func openPair(t *testing.T, a, b wire.Transport) (x, y wire.Stream) {
	t.Helper()
	x, err := a.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := x.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	y, err = b.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := y.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return x, y
}

// network is a simulated one for the length of a synctest bubble.
type network struct {
	net    *simnet.Simnet
	router *switchRouter
}

// switchRouter delivers until it is cut.
type switchRouter struct {
	simnet.PerfectRouter
	cut chan struct{}
}

func (r *switchRouter) SendPacket(p simnet.Packet) error {
	select {
	case <-r.cut:
		return nil
	default:
		return r.PerfectRouter.SendPacket(p)
	}
}

// inNetwork runs f in a bubble with a network of two hosts, 10 ms apart.
func inNetwork(t *testing.T, f func(t *testing.T, n network, a, b net.PacketConn)) {
	synctest.Test(t, func(t *testing.T) {
		router := &switchRouter{cut: make(chan struct{})}
		n := network{net: &simnet.Simnet{Router: router}, router: router}
		link := simnet.NodeBiDiLinkSettings{Latency: 10 * time.Millisecond}
		a := n.net.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4433}, link)
		b := n.net.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 4433}, link)
		if err := n.net.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = a.Close(), b.Close()
			_ = n.net.Close()
		})
		f(t, n, a, b)
	})
}

func simListen(t *testing.T, pc net.PacketConn, secret []byte) *Listener {
	t.Helper()
	l, err := ListenPacket(pc, ListenOptions{Secret: secret, DisablePathMTUDiscovery: true})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func simDial(ctx context.Context, pc net.PacketConn, l *Listener, role wire.Role) (*Conn, error) {
	return DialPacket(ctx, pc, l.Addr(), Options{Role: role, DisablePathMTUDiscovery: true})
}
