package quicconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"

	"github.com/postern-relay/postern/wire"
)

func listen(t *testing.T, o ListenOptions) (*Listener, func() (*Conn, error)) {
	t.Helper()
	l, err := Listen("127.0.0.1:0", o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, func() (*Conn, error) {
		return patient(func() (*Conn, error) { return Dial(t.Context(), l.Addr().String(), executor) })
	}
}

func wantBusy(t *testing.T, what string, c *Conn, err error) {
	t.Helper()
	if err == nil {
		_ = c.Close(wire.CodeShutdown, "")
	}
	if wire.CodeOf(err) != wire.CodeBusy {
		t.Errorf("%s: %v, want code %v", what, err, wire.CodeBusy)
	}
}

func TestHandshakesInFlightAreLimitedUntilTheyAreAdmittedOrEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGuard(GuardOptions{Random: func() float64 { return 0 }}) // refuse as soon as there is a chance
		n := &simnet.Simnet{Router: &simnet.PerfectRouter{}}
		var sockets [dropBegin + 5]net.PacketConn
		for i := range sockets {
			sockets[i] = n.NewEndpoint(&net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 4433 + i}, simnet.NodeBiDiLinkSettings{})
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		l, err := ListenPacket(sockets[0], ListenOptions{Guard: g, DisablePathMTUDiscovery: true})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		free := sockets[1:]
		dial := func() (*Conn, error) {
			socket := free[0]
			free = free[1:]
			return simDial(t.Context(), socket, l, wire.RoleExecutor)
		}
		var dialled, accepted []*Conn
		join := func() {
			t.Helper()
			a, b := connect(t, l, dial)
			dialled, accepted = append(dialled, a), append(accepted, b)
		}
		refuse := func(what string) {
			t.Helper()
			c, err := dial()
			wantBusy(t, what, c, err)
			time.Sleep(time.Second) // whatever else it had sent has arrived, and takes no place that comes free later
		}
		for range dropBegin {
			join()
		}
		if g.InFlight() != dropBegin {
			t.Fatalf("%d in flight, want %d", g.InFlight(), dropBegin)
		}
		refuse("dial above the limit")
		if got := g.Counts()[LimitHandshakeGlobal]; got == 0 {
			t.Error("the refusal is not counted")
		}
		accepted[0].Admit()
		join()
		refuse("dial in the place of one that was taken")
		_ = accepted[1].Close(wire.CodeUnauthorized, "no")
		join()
		if g.InFlight() != dropBegin {
			t.Errorf("%d in flight, want %d", g.InFlight(), dropBegin)
		}
		for n, c := range accepted[2:] { // what is closed has given back what it had
			_ = c.Close(wire.CodeShutdown, "")
			if want := dropBegin - n - 1; g.InFlight() != want {
				t.Fatalf("%d in flight after Close, want %d", g.InFlight(), want)
			}
		}
		for _, c := range append(dialled, accepted...) {
			_ = c.Close(wire.CodeShutdown, "")
		}
	})
}

func TestPenalisedSourceIsRefusedUntilItIsForgiven(t *testing.T) {
	inNetwork(t, func(t *testing.T, _ network, here, there net.PacketConn) {
		l := simListen(t, there, nil)
		defer l.Close()
		dial := func() (*Conn, error) { return simDial(t.Context(), here, l, wire.RoleExecutor) }
		for range 4 {
			a, b := connect(t, l, dial)
			b.Penalise(wire.CodeUnauthorized)
			_ = b.Close(wire.CodeUnauthorized, "no")
			<-a.Context().Done()
			_ = a.Close(wire.CodeShutdown, "")
		}
		before := l.Guard().Counts()
		c, err := dial()
		wantBusy(t, "dial of a penalised source", c, err)
		after := l.Guard().Counts()
		if after[LimitHandshakeSource] == before[LimitHandshakeSource] {
			t.Error("the refusal is not counted as one by source")
		}
		if after[LimitRetryToken] == before[LimitRetryToken] {
			t.Error("refused without a proof of the address")
		}
		time.Sleep(penaltyStep)
		a, b := connect(t, l, dial)
		_, _ = a.Close(wire.CodeShutdown, ""), b.Close(wire.CodeShutdown, "")
	})
}

func TestSourceBarredDuringItsHandshakeIsRefusedAfterIt(t *testing.T) {
	g := NewGuard(GuardOptions{})
	l, dial := listen(t, ListenOptions{Guard: g})
	barred, err := dial() // its handshake is done, and it waits to be accepted
	if err != nil {
		t.Fatal(err)
	}
	for range 40 { // so that it is still barred when it is looked at
		g.Penalise(addrOf(l.Addr()))
	}
	accepting, stop := context.WithCancel(t.Context())
	accepted := make(chan error, 1)
	go func() {
		_, err := l.Accept(accepting)
		accepted <- err
	}()
	select {
	case <-barred.Context().Done():
	case err := <-accepted:
		t.Fatalf("Accept: %v, want it to go on waiting", err)
	}
	stop()
	if err := <-accepted; !errors.Is(err, context.Canceled) {
		t.Errorf("Accept: %v, want it to go on waiting", err)
	}
	if err := context.Cause(barred.Context()); wire.CodeOf(err) != wire.CodeBusy {
		t.Errorf("the barred one sees %v, want code %v", err, wire.CodeBusy)
	}
	_ = barred.Close(wire.CodeShutdown, "")
	if got := g.Counts()[LimitHandshakeSource]; got != 1 {
		t.Errorf("%d refusals by source, want 1", got)
	}
}

// tokens keeps what a listener hands out for the next handshake.
type tokens struct {
	got  chan *quic.ClientToken
	next *quic.ClientToken
}

func (s *tokens) Put(_ string, token *quic.ClientToken) {
	select {
	case s.got <- token:
	default:
	}
}
func (s *tokens) Pop(string) *quic.ClientToken { return s.next }

// TestOldTokensProveNothing: a token says who was at an address once, so whoever had it
// yesterday could bring the limits for one source upon who has it today.
func TestOldTokensProveNothing(t *testing.T) {
	l, _ := listen(t, ListenOptions{})
	store := &tokens{got: make(chan *quic.ClientToken, 1)}
	config := dialConfig(executor)
	config.TokenStore = store
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	transport := &quic.Transport{Conn: socket}
	defer transport.Close()
	q, err := transport.Dial(t.Context(), l.Addr(), dialTLS(), config)
	if err != nil {
		t.Fatal(err)
	}
	store.next = <-store.got
	_ = q.CloseWithError(0, "")
	for range 40 { // so that it is still barred when it is looked at
		l.Guard().Penalise(addrOf(l.Addr()))
	}
	before := l.Guard().Counts()[LimitRetryToken]
	if _, err := transport.Dial(t.Context(), l.Addr(), dialTLS(), config); err == nil {
		t.Error("a barred source got in")
	}
	if l.Guard().Counts()[LimitRetryToken] == before {
		t.Error("an old token was taken for a proof")
	}
}

func TestDefaultGuardIsOfTheListenerAlone(t *testing.T) {
	a, _ := listen(t, ListenOptions{})
	b, _ := listen(t, ListenOptions{})
	if a.Guard() == nil || a.Guard() == b.Guard() {
		t.Error("two listeners without a Guard share one, or have none")
	}
	g := NewGuard(GuardOptions{})
	c, dial := listen(t, ListenOptions{Guard: g})
	if c.Guard() != g {
		t.Error("the Guard of the options is not the listener's")
	}
	_, x := connect(t, c, dial)
	if g.InFlight() != 1 {
		t.Errorf("%d in flight, want 1", g.InFlight())
	}
	x.Admit()
	if g.InFlight() != 0 {
		t.Errorf("%d in flight after Admit, want 0", g.InFlight())
	}
}

func TestUnfinishedHandshakesGoByThemselves(t *testing.T) {
	inNetwork(t, func(t *testing.T, _ network, here, there net.PacketConn) {
		l := simListen(t, there, nil)
		defer l.Close()
		for range 2 * halfOpenMost {
			if _, err := here.WriteTo(forgedInitial(), l.Addr()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if n := l.Guard().InFlight(); n != halfOpenMost {
			t.Errorf("%d in flight, want %d", n, halfOpenMost)
		}
		time.Sleep(2 * commonConfig().HandshakeIdleTimeout)
		synctest.Wait()
		if n := l.Guard().InFlight(); n != 0 {
			t.Errorf("%d in flight after their timeout", n)
		}
	})
}
