package quicconn

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/postern-relay/postern/wire"
)

func echo(t *testing.T, s wire.Stream, n int) {
	t.Helper()
	if _, err := s.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
}

func serveEcho(s wire.Stream) {
	_, _ = io.Copy(s, s)
	s.Reset(wire.CodeCancelled)
}

func TestStatsCountBothDirections(t *testing.T) {
	a, b := loopback(t, ListenOptions{}, executor)
	x, y := openPair(t, a, b)
	go serveEcho(y)
	const size = 32 << 10
	echo(t, x, size)
	for side, c := range map[string]*Conn{"dialler": a, "listener": b} {
		s := c.Stats()
		if s.BytesSent < size || s.BytesReceived < size || s.PacketsSent < size/1500 || s.PacketsReceived < size/1500 || s.RTT <= 0 {
			t.Errorf("%s after an echo of %d bytes: %+v", side, size, s)
		}
		if s.PathChanges != 0 {
			t.Errorf("%s: %d path changes on one path", side, s.PathChanges)
		}
	}
	_ = a.Close(wire.CodeShutdown, "")
	if s := a.Stats(); s.BytesSent < size {
		t.Errorf("after Close: %+v", s)
	}
}

// lossy drops every tenth packet that is no part of a handshake.
type lossy struct {
	simnet.PerfectRouter
	on    atomic.Bool
	count atomic.Int64
}

func (r *lossy) SendPacket(p simnet.Packet) error {
	if r.on.Load() && r.count.Add(1)%10 == 0 {
		return nil
	}
	return r.PerfectRouter.SendPacket(p)
}

func TestStatsTellOfLossesAndNeverTakeThemBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		router := &lossy{}
		n := &simnet.Simnet{Router: router}
		here := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4433}, simnet.NodeBiDiLinkSettings{})
		there := n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 4433}, simnet.NodeBiDiLinkSettings{})
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		l := simListen(t, there, nil)
		defer l.Close()
		a, b := connect(t, l, func() (*Conn, error) { return simDial(t.Context(), here, l, wire.RoleExecutor) })
		x, y := openPair(t, a, b)
		go serveEcho(y)
		router.on.Store(true)
		before := uint64(0)
		for range 20 {
			echo(t, x, 32<<10)
			if lost := a.Stats().PacketsLost; lost < before {
				t.Errorf("%d packets lost, and %d before", lost, before)
			} else {
				before = lost
			}
		}
		if before == 0 {
			t.Error("no packet was lost of those that the router dropped")
		}
		a.seen.lost += 100 // as if that many had been declared lost and come late
		if lost := a.Stats().PacketsLost; lost < 100 {
			t.Errorf("%d packets lost, after %d", lost, before+100)
		}
	})
}

// rebinder is a NAT between one peer and a listener: rebind gives the peer another port.
type rebinder struct {
	inside *net.UDPConn
	to     *net.UDPAddr

	mu      sync.Mutex
	peer    *net.UDPAddr
	outside *net.UDPConn
	all     sync.WaitGroup
}

func newRebinder(t *testing.T, to *net.UDPAddr) *rebinder {
	t.Helper()
	inside, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &rebinder{inside: inside, to: to}
	r.rebind(t)
	r.all.Go(func() {
		b := make([]byte, 2048)
		for {
			n, from, err := inside.ReadFromUDP(b)
			if err != nil {
				return
			}
			r.mu.Lock()
			r.peer = from
			_, _ = r.outside.Write(b[:n])
			r.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = inside.Close()
		r.mu.Lock()
		_ = r.outside.Close()
		r.mu.Unlock()
		r.all.Wait()
	})
	return r
}

func (r *rebinder) rebind(t *testing.T) {
	outside, err := net.DialUDP("udp4", nil, r.to)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	if r.outside != nil {
		_ = r.outside.Close()
	}
	r.outside = outside
	r.mu.Unlock()
	r.all.Go(func() {
		b := make([]byte, 2048)
		for {
			n, err := outside.Read(b)
			if err != nil {
				return
			}
			r.mu.Lock()
			_, _ = r.inside.WriteToUDP(b[:n], r.peer)
			r.mu.Unlock()
		}
	})
}

func TestStatsNoticeThatThePeerHasMoved(t *testing.T) {
	l, _ := listen(t, ListenOptions{})
	nat := newRebinder(t, l.Addr().(*net.UDPAddr))
	a, b := connect(t, l, func() (*Conn, error) { return Dial(t.Context(), nat.inside.LocalAddr().String(), executor) })
	x, y := openPair(t, a, b)
	go serveEcho(y)
	echo(t, x, 1)
	for moves := range uint64(2) {
		if got := b.Stats().PathChanges; got != moves {
			t.Fatalf("%d path changes, want %d", got, moves)
		}
		nat.rebind(t)
		for b.Stats().PathChanges == moves { // the listener follows once it has checked the path
			echo(t, x, 1)
		}
	}
	if a.Stats().PathChanges != 0 {
		t.Error("the dialler saw the listener move")
	}
}
