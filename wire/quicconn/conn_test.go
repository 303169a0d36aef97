package quicconn

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

var executor = Options{Role: wire.RoleExecutor}

func TestStreamsKeepTheStreamPromises(t *testing.T) {
	dialled, accepted := loopback(t, ListenOptions{}, executor)
	accepted.Admit()
	t.Run("OpenedByDialler", func(t *testing.T) {
		wiretest.TestStream(t, func(t *testing.T) (a, b wire.Stream) { return openPair(t, dialled, accepted) })
	})
	t.Run("OpenedByListener", func(t *testing.T) {
		wiretest.TestStream(t, func(t *testing.T) (a, b wire.Stream) { return openPair(t, accepted, dialled) })
	})
}

func TestBothEndsHaveTheSameBindingAndEachConnectionItsOwn(t *testing.T) {
	a, b := loopback(t, ListenOptions{}, executor)
	c, _ := loopback(t, ListenOptions{}, executor)
	if len(a.Binding()) != 32 || !bytes.Equal(a.Binding(), b.Binding()) {
		t.Errorf("bindings %x and %x, want the same 32 bytes", a.Binding(), b.Binding())
	}
	if bytes.Equal(a.Binding(), c.Binding()) {
		t.Error("two connections share a binding")
	}
}

func TestTLSHasOneVersionGroupAndProtocol(t *testing.T) {
	a, _ := loopback(t, ListenOptions{}, executor)
	state := a.quic.ConnectionState().TLS
	if state.Version != tls.VersionTLS13 || state.CurveID != tls.X25519MLKEM768 || state.NegotiatedProtocol != wire.ALPN {
		t.Errorf("negotiated version %x, group %v, protocol %q", state.Version, state.CurveID, state.NegotiatedProtocol)
	}
	if a.quic.ConnectionState().Used0RTT || state.DidResume {
		t.Error("connection was resumed")
	}
}

func TestCloseReachesThePeerWithCodeAndText(t *testing.T) {
	for _, direction := range []string{"dialler closes", "listener closes"} {
		t.Run(direction, func(t *testing.T) {
			a, b := loopback(t, ListenOptions{}, executor)
			if direction == "listener closes" {
				a, b = b, a
			}
			x, y := openPair(t, a, b)
			want := &wire.Error{Code: wire.CodeSuperseded, Text: "a newer one is here"}
			if err := a.Close(want.Code, want.Text); err != nil {
				t.Fatal(err)
			}
			<-b.Context().Done()
			_, readErr := y.Read(make([]byte, 1))
			_, writeErr := x.Write([]byte("x"))
			_, acceptErr := b.AcceptStream(t.Context())
			_, openErr := b.TryOpenStream()
			for what, err := range map[string]error{
				"peer's Context": context.Cause(b.Context()), "own Context": context.Cause(a.Context()),
				"peer's Read": readErr, "own Write": writeErr, "peer's Accept": acceptErr, "peer's TryOpen": openErr,
			} {
				if got, _ := errors.AsType[*wire.Error](err); !cmp.Equal(got, want) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			if !errors.Is(readErr, wire.ErrLost) || !errors.Is(writeErr, wire.ErrLost) {
				t.Errorf("streams of a closed connection: %v and %v, want them to wrap wire.ErrLost too", readErr, writeErr)
			}
		})
	}
}

func TestResetWithoutACodeIsAProtocolError(t *testing.T) {
	a, b := loopback(t, ListenOptions{}, executor)
	for _, number := range []uint64{0, 1 << 16, 1 << 40} {
		x, y := openPair(t, a, b)
		x.(*stream).quic.CancelWrite(quicCode(number))
		if _, err := y.Read(make([]byte, 1)); wire.CodeOf(err) != wire.CodeProtocol {
			t.Errorf("reset with %d: %v, want code %v", number, err, wire.CodeProtocol)
		}
	}
}

func TestSilenceLosesTheConnectionAfterItsIdleTimeout(t *testing.T) {
	for role, idle := range map[wire.Role]time.Duration{
		wire.RoleExecutor: wire.ExecutorIdle, wire.RoleClient: wire.ClientIdle,
	} {
		inNetwork(t, func(t *testing.T, n network, here, there net.PacketConn) {
			l := simListen(t, there, nil)
			defer l.Close()
			a, b := connect(t, l, func() (*Conn, error) { return simDial(t.Context(), here, l, role) })
			x, err := a.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			close(n.router.cut)
			start := time.Now()
			_, err = x.Read(make([]byte, 1))
			if !errors.Is(err, wire.ErrLost) || errors.Is(err, io.EOF) {
				t.Errorf("Read: %v, want wire.ErrLost", err)
			}
			// The first packet after the last one received starts the timer anew (RFC 9000
			// section 10.1), so a keep-alive that nobody answers adds its period.
			late := dialConfig(Options{Role: role}).KeepAlivePeriod
			if took := time.Since(start); took < idle || took > idle+late+time.Second {
				t.Errorf("role %d noticed after %v, want %v to %v", role, took, idle, idle+late)
			}
			<-a.Context().Done()
			<-b.Context().Done()
			for _, c := range []*Conn{a, b} {
				if err := context.Cause(c.Context()); !errors.Is(err, wire.ErrLost) || wire.CodeOf(err) != wire.CodeUnknown {
					t.Errorf("cause: %v, want wire.ErrLost", err)
				}
			}
		})
	}
}

func TestRestartedListenerIsNoticedAtTheNextHeartbeat(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	cases := []struct {
		name          string
		before, after []byte
		within        time.Duration
	}{
		{"same secret", secret, secret, time.Second},
		{"other secret", secret, bytes.Repeat([]byte{8}, 32), wire.ExecutorIdle},
		{"no secret", nil, nil, wire.ExecutorIdle},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inNetwork(t, func(t *testing.T, _ network, here, there net.PacketConn) {
				l := simListen(t, there, c.before)
				a, b := connect(t, l, func() (*Conn, error) { return simDial(t.Context(), here, l, wire.RoleExecutor) })
				x, _ := openPair(t, a, b)
				synctest.Wait()
				if err := l.Close(); err != nil { // as a crash: no word to the peer
					t.Fatal(err)
				}
				l = simListen(t, there, c.after)
				defer l.Close()
				start := time.Now()
				if _, err := x.Write(make([]byte, 64)); err != nil {
					t.Fatal(err)
				}
				_, err := x.Read(make([]byte, 1))
				if !errors.Is(err, wire.ErrLost) {
					t.Errorf("Read: %v, want wire.ErrLost", err)
				}
				took := time.Since(start)
				if took > c.within+time.Second || c.within > time.Second && took < 10*time.Second {
					t.Errorf("noticed after %v, want about %v", took, c.within)
				}
			})
		})
	}
}

func TestPeerCannotFillMemoryBeforeItIsAdmitted(t *testing.T) {
	inNetwork(t, func(t *testing.T, _ network, here, there net.PacketConn) {
		l := simListen(t, there, nil)
		defer l.Close()
		a, b := connect(t, l, func() (*Conn, error) { return simDial(t.Context(), here, l, wire.RoleExecutor) })
		const streams = 20
		taken := 0
		for range streams { // that nobody reads
			s, err := a.OpenStream(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := s.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := s.Write(make([]byte, 1<<20))
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("Write: %d, %v", n, err)
			}
			taken += n
		}
		// A write that ends by its deadline may count one packet that was never sent.
		if most := listenConnInitial + streams*1500; taken > most {
			t.Errorf("stranger made the listener hold %d bytes, want at most %d", taken, most)
		}
		grows := listenConfig(ListenOptions{}).AllowConnectionWindowIncrease
		if grows(b.quic, 1) {
			t.Error("a stranger's window grows")
		}
		b.Admit()
		if !grows(b.quic, 1) {
			t.Error("an admitted peer's window does not grow")
		}
	})
}

func TestOpenAtTheLimitOfThePeerIsBusyAndNeverWaits(t *testing.T) {
	a, b := loopback(t, ListenOptions{}, Options{Role: wire.RoleExecutor, MaxStreams: 2})
	var open []wire.Stream
	for range 2 {
		x, y := openPair(t, b, a)
		open = append(open, x, y)
	}
	if _, err := b.TryOpenStream(); wire.CodeOf(err) != wire.CodeBusy {
		t.Fatalf("TryOpenStream: %v, want code %v", err, wire.CodeBusy)
	}
	for _, s := range open {
		s.Reset(wire.CodeCancelled)
	}
	s, err := b.OpenStream(t.Context()) // waits for the credit to come back
	if err != nil {
		t.Fatal(err)
	}
	s.Reset(wire.CodeCancelled)
}

func TestNobodyOpensAStreamTowardsAClient(t *testing.T) {
	_, b := loopback(t, ListenOptions{}, Options{Role: wire.RoleClient})
	if _, err := b.TryOpenStream(); wire.CodeOf(err) != wire.CodeBusy {
		t.Fatalf("TryOpenStream: %v, want code %v", err, wire.CodeBusy)
	}
}

func TestAcceptAfterCloseIsErrClosed(t *testing.T) {
	l, err := Listen("127.0.0.1:0", ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 1)
	go func() {
		_, err := l.Accept(context.Background())
		failed <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Fatalf("Accept: %v, want net.ErrClosed", err)
	}
}

func TestListenRefusesAShortSecret(t *testing.T) {
	if l, err := Listen("127.0.0.1:0", ListenOptions{Secret: make([]byte, 31)}); err == nil {
		l.Close()
		t.Fatal("Listen took a secret of 31 bytes")
	}
}

// unsizable is a socket whose buffers cannot be set, about which quic-go would complain.
type unsizable struct{ net.PacketConn }

func TestNothingIsPrintedAboutBuffers(t *testing.T) {
	const name = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"
	var printed bytes.Buffer
	log.SetOutput(&printed)
	defer log.SetOutput(os.Stderr)
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	before, had := os.LookupEnv(name)
	l, err := ListenPacket(unsizable{socket}, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if printed.Len() > 0 {
		t.Errorf("printed %q", printed.String())
	}
	if after, has := os.LookupEnv(name); after != before || has != had {
		t.Errorf("%s is left as %q", name, after)
	}
}
