package quicconn

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

func quicCode(n uint64) quic.StreamErrorCode { return quic.StreamErrorCode(n) }

func TestDialOfANameTriesItsAddresses(t *testing.T) {
	l, err := Listen("127.0.0.1:0", ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	// localhost may be ::1 first, where nobody listens.
	connect(t, l, func() (*Conn, error) {
		return Dial(t.Context(), net.JoinHostPort("localhost", port), executor)
	})
}

func TestDialErrorsSayWhatIsWrong(t *testing.T) {
	for _, address := range []string{"relay.example", "127.0.0.1:0", "127.0.0.1:https", ":4433", "127.0.0.1:70000"} {
		if _, err := Dial(t.Context(), address, executor); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("Dial(%q): %v, want an error that asks for host:port", address, err)
		}
	}
	if _, err := Dial(t.Context(), "127.0.0.1:1", Options{}); err == nil || !strings.Contains(err.Error(), "role") {
		t.Errorf("Dial without a role: %v", err)
	}
}

// foreign is a QUIC listener that is not postern's.
func foreign(t *testing.T, protocol string, c *quic.Config) net.Addr {
	t.Helper()
	tlsConfig, err := listenTLS()
	if err != nil {
		t.Fatal(err)
	}
	tlsConfig.NextProtos = []string{protocol}
	socket, err := openSocket("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	tr := &quic.Transport{Conn: socket}
	if _, err := tr.Listen(tlsConfig, c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = tr.Close()
		_ = socket.Close()
	})
	return socket.LocalAddr()
}

func TestDialOfAnotherProtocolIsAVersionError(t *testing.T) {
	address := foreign(t, "h3", nil)
	if _, err := patient(func() (*Conn, error) { return Dial(t.Context(), address.String(), executor) }); wire.CodeOf(err) != wire.CodeVersion {
		t.Errorf("Dial: %v, want code %v", err, wire.CodeVersion)
	}
}

func TestDialThatIsRefusedIsBusy(t *testing.T) {
	address := foreign(t, wire.ALPN, &quic.Config{
		GetConfigForClient: func(*quic.ClientInfo) (*quic.Config, error) { return nil, errors.New("full") },
	})
	if _, err := patient(func() (*Conn, error) { return Dial(t.Context(), address.String(), executor) }); wire.CodeOf(err) != wire.CodeBusy {
		t.Errorf("Dial: %v, want code %v", err, wire.CodeBusy)
	}
}

func TestDialIntoSilenceSaysSo(t *testing.T) {
	inNetwork(t, func(t *testing.T, n network, here, there net.PacketConn) {
		close(n.router.cut)
		start := time.Now()
		_, err := DialPacket(t.Context(), here, there.LocalAddr(), executor)
		if !errors.Is(err, ErrNoAnswer) || time.Since(start) > 6*time.Second {
			t.Errorf("DialPacket: %v after %v, want ErrNoAnswer within 6 s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := DialPacket(ctx, here, there.LocalAddr(), executor); !errors.Is(err, ErrNoAnswer) {
			t.Errorf("DialPacket with a short context: %v, want ErrNoAnswer", err)
		}
	})
}

func TestSocketCarriesOneConnectionAfterAnother(t *testing.T) {
	inNetwork(t, func(t *testing.T, _ network, here, there net.PacketConn) {
		l := simListen(t, there, nil)
		defer l.Close()
		for range 3 {
			a, b := connect(t, l, func() (*Conn, error) { return simDial(t.Context(), here, l, wire.RoleExecutor) })
			openPair(t, a, b)
			if err := a.Close(wire.CodeShutdown, "next"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestDialRace(t *testing.T) {
	first, second := netip.MustParseAddrPort("192.0.2.1:1"), netip.MustParseAddrPort("192.0.2.2:1")
	busy := wire.Errorf(wire.CodeBusy, "full")
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	cases := []struct {
		name string
		dial func(context.Context, netip.AddrPort) error
		want error
		took time.Duration
	}{
		{"silent first address delays by a quarter second", func(ctx context.Context, a netip.AddrPort) error {
			if a == first {
				return silent(ctx)
			}
			return nil
		}, nil, 250 * time.Millisecond},
		{"failed first address delays by nothing", func(_ context.Context, a netip.AddrPort) error {
			if a == first {
				return errors.New("no route")
			}
			return nil
		}, nil, 0},
		{"an answer says more than silence", func(_ context.Context, a netip.AddrPort) error {
			if a == first {
				return busy
			}
			return ErrNoAnswer
		}, busy, 0},
		{"silence says more than a local failure", func(_ context.Context, a netip.AddrPort) error {
			if a == first {
				return errors.New("no route")
			}
			return ErrNoAnswer
		}, ErrNoAnswer, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				conn := new(Conn)
				got, err := raceDial(t.Context(), []netip.AddrPort{first, second},
					func(ctx context.Context, a netip.AddrPort) (*Conn, error) {
						if err := c.dial(ctx, a); err != nil {
							return nil, err
						}
						return conn, nil
					})
				if err != c.want || (got == conn) != (c.want == nil) || time.Since(start) != c.took {
					t.Errorf("got %v, %v after %v, want error %v after %v", got, err, time.Since(start), c.want, c.took)
				}
			})
		})
	}
}
