package quicconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/quic-go/quic-go"
	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/wire"
)

// groSocket is a socket that is read coalesced, or the end of the test.
func groSocket(t *testing.T, network string, local *net.UDPAddr) *groConn {
	t.Helper()
	socket, err := net.ListenUDP(network, local)
	if err != nil {
		t.Skipf("no %s here: %v", network, err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	conn, _ := coalesced(socket)
	c, ok := conn.(*groConn)
	if !ok {
		t.Skip("this kernel has no UDP_GRO")
	}
	return c
}

// coalescing is the option as the kernel has it.
func coalescing(t *testing.T, socket net.PacketConn) (on bool) {
	t.Helper()
	raw, err := socket.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var n int
	var got error
	if err := raw.Control(func(fd uintptr) { n, got = unix.GetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO) }); err != nil || got != nil {
		t.Skipf("this kernel has no UDP_GRO: %v %v", err, got)
	}
	return n != 0
}

// mark is a control message for sending with these ECN bits.
func mark(to *net.UDPAddr, ecn int) []byte {
	if to.IP.To4() != nil {
		return control(unix.IPPROTO_IP, unix.IP_TOS, number(uint32(ecn)))
	}
	return control(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, number(uint32(ecn)))
}

// marked are the ECN bits that a datagram came with, and whether it says where it was sent to.
func marked(t *testing.T, controls []byte) (ecn int, addressed bool) {
	t.Helper()
	parsed, err := unix.ParseSocketControlMessage(controls)
	if err != nil {
		t.Fatal(err)
	}
	ecn = -1
	for _, c := range parsed {
		switch {
		case c.Header.Level == unix.IPPROTO_IP && c.Header.Type == unix.IP_TOS:
			ecn = int(c.Data[0])
		case c.Header.Level == unix.IPPROTO_IPV6 && c.Header.Type == unix.IPV6_TCLASS:
			ecn = int(binary.NativeEndian.Uint32(c.Data))
		case c.Header.Type == unix.IP_PKTINFO && c.Header.Level == unix.IPPROTO_IP,
			c.Header.Type == unix.IPV6_PKTINFO && c.Header.Level == unix.IPPROTO_IPV6:
			addressed = true
		}
	}
	return ecn, addressed
}

// asQUICSets sets what quic-go sets, of which one family's fails.
func asQUICSets(t *testing.T, c *groConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		for _, o := range [][2]int{
			{unix.IPPROTO_IP, unix.IP_RECVTOS},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS},
			{unix.IPPROTO_IP, unix.IP_PKTINFO},
			{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO},
		} {
			_ = unix.SetsockoptInt(int(fd), o[0], o[1], 1)
		}
	}); err != nil {
		t.Fatal(err)
	}
}

func TestCoalescedDatagramsKeepOrderBytesAndECN(t *testing.T) {
	for name, c := range map[string]struct {
		network string
		local   net.IP
		from    string
		to      net.IP
	}{
		"IPv4":                      {"udp4", net.IPv4(127, 0, 0, 1), "udp4", net.IPv4(127, 0, 0, 1)},
		"IPv6":                      {"udp6", net.IPv6loopback, "udp6", net.IPv6loopback},
		"IPv4 to a socket for both": {"udp", net.IPv6unspecified, "udp4", net.IPv4(127, 0, 0, 1)},
		"IPv6 to a socket for both": {"udp", net.IPv6unspecified, "udp6", net.IPv6loopback},
	} {
		t.Run(name, func(t *testing.T) {
			reader := groSocket(t, c.network, &net.UDPAddr{IP: c.local})
			asQUICSets(t, reader)
			if err := reader.SetReadBuffer(1 << 20); err != nil {
				t.Fatal(err)
			}
			to := &net.UDPAddr{IP: c.to, Port: reader.LocalAddr().(*net.UDPAddr).Port}
			sender, err := net.ListenUDP(c.from, &net.UDPAddr{IP: c.to})
			if err != nil {
				t.Skipf("no %s here: %v", c.from, err)
			}
			defer sender.Close()
			if err := reader.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Fatal(err)
			}
			coalesced := 0
			for round := range 50 { // each with trains of all four marks, one after another
				var want []datagram
				for ecn := range 4 {
					segment, datagramsOf := 100+13*round, 1+(round+ecn)%8
					whole := make([]byte, segment*(datagramsOf-1)+1+(segment-1)*(round%2))
					for i := range whole {
						whole[i] = byte(i*7 + i>>8 + round + ecn)
					}
					oob := slices.Concat(control(unix.IPPROTO_UDP, unix.UDP_SEGMENT, binary.NativeEndian.AppendUint16(nil, uint16(segment))), mark(to, ecn))
					if _, _, err := sender.WriteMsgUDP(whole, oob, to); err != nil {
						t.Skipf("no UDP_SEGMENT here: %v", err)
					}
					for piece := range slices.Chunk(whole, segment) {
						want = append(want, datagram{data: piece, flags: ecn})
					}
				}
				ms := batchOf(8, 1452, 128)
				for len(want) > 0 {
					n, err := reader.ReadBatch(ms, 0)
					if err != nil {
						t.Fatalf("%d datagrams are missing: %v", len(want), err)
					}
					for _, m := range reader.messages[:reader.filled] {
						if m.N > 1452 {
							coalesced++
						}
					}
					for _, got := range datagrams(ms[:n]) {
						ecn, addressed := marked(t, got.controls)
						if !bytes.Equal(got.data, want[0].data) || ecn != want[0].flags || !addressed || got.flags != 0 {
							t.Fatalf("round %d: %d bytes with ECN %d, addressed %v, flags %#x; want %d bytes with ECN %d", round, len(got.data), ecn, addressed, got.flags, len(want[0].data), want[0].flags)
						}
						if from := got.from.(*net.UDPAddr); from.Port != sender.LocalAddr().(*net.UDPAddr).Port {
							t.Fatalf("from %v", from)
						}
						want = want[1:]
					}
				}
			}
			if coalesced == 0 {
				t.Error("nothing was coalesced")
			}
			if len(reader.messages) > groMost {
				t.Errorf("room for %d messages", len(reader.messages))
			}
		})
	}
}

func TestQuietSocketHasRoomForOneMessage(t *testing.T) {
	c := groSocket(t, "udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	sender, err := net.DialUDP("udp4", nil, c.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	exchange := func(burst int) {
		for i := range burst {
			if _, err := sender.Write([]byte{byte(i)}); err != nil {
				t.Fatal(err)
			}
		}
		for got := 0; got < burst; {
			n, err := c.ReadBatch(batchOf(8, 1452, 128), 0)
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
	}
	exchange(1)
	if len(c.messages) != 1 {
		t.Errorf("room for %d messages after one", len(c.messages))
	}
	for range 5 {
		exchange(100)
	}
	if len(c.messages) != groMost {
		t.Errorf("room for %d messages after bursts, want %d", len(c.messages), groMost)
	}
}

func TestCloseAndDeadlineEndAReadAndLoseNothing(t *testing.T) {
	c := groSocket(t, "udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err := c.SetReadDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.ReadBatch(batchOf(8, 1452, 128), 0); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after the deadline: %d, %v", n, err)
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WriteTo([]byte("still"), c.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	ms := batchOf(8, 1452, 128)
	if n, err := c.ReadBatch(ms, 0); n != 1 || err != nil || string(ms[0].Buffers[0][:ms[0].N]) != "still" {
		t.Fatalf("after the deadline was lifted: %d, %v", n, err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		ms := batchOf(8, 1452, 128)
		for {
			if _, err := c.ReadBatch(ms, 0); err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("end of the read: %v", err)
				}
				return
			}
		}
	})
	for range 100 { // the reader is anywhere when the socket is closed
		_, _ = c.WriteTo(make([]byte, 3000), c.LocalAddr())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	reading.Wait()
}

func TestSocketsReadCoalescedUntilTheirConnectionsEnd(t *testing.T) {
	mine, err := openSocket("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer mine.Close()
	if coalescing(t, mine) {
		t.Fatal("before anything")
	}
	inherited, err := InheritedSocket(handedDown(t, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer inherited.Close()
	l, err := ListenPacket(inherited, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for range 2 { // a socket may carry the next connection
		a, b := connect(t, l, func() (*Conn, error) { return DialPacket(t.Context(), mine, l.Addr(), executor) })
		if !coalescing(t, inherited) || !coalescing(t, mine) {
			t.Errorf("listening socket %v, dialled one %v", coalescing(t, inherited), coalescing(t, mine))
		}
		x, y := openPair(t, a, b)
		go serveEcho(y)
		echo(t, x, 32<<10)
		if err := a.Close(wire.CodeShutdown, ""); err != nil {
			t.Fatal(err)
		}
		if coalescing(t, mine) {
			t.Error("the caller's socket stays as it was made")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if coalescing(t, inherited) {
		t.Error("the inherited socket stays as it was made")
	}
	if _, err := DialPacket(t.Context(), mine, &net.UDPAddr{}, executor); err == nil || coalescing(t, mine) {
		t.Errorf("after a dial that failed (%v): %v", err, coalescing(t, mine))
	}
}

func TestCoalescingIsTurnedOffByTheEnvironment(t *testing.T) {
	l, _ := listen(t, ListenOptions{})
	if !coalescing(t, l.socket) {
		t.Fatal("it was not on")
	}
	t.Setenv("POSTERN_DISABLE_GRO", "1")
	// As a socket of systemd's that a killed relay has left behind.
	left := groSocketLeft(t)
	conn, undo := coalesced(left)
	defer undo()
	if conn != net.PacketConn(left) || coalescing(t, left) {
		t.Errorf("read through a %T, coalesced: %v", conn, coalescing(t, left))
	}
}

func groSocketLeft(t *testing.T) *net.UDPConn {
	t.Helper()
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	if err := setCoalescing(socket, true); err != nil {
		t.Skip("this kernel has no UDP_GRO")
	}
	return socket
}

// pingSocket is one whose kernel side does not know the option, as all of an old kernel.
func pingSocket(t *testing.T) *net.UDPConn {
	t.Helper()
	var fd int
	var err error
	made := make(chan struct{})
	go func() {
		defer close(made)
		// Where nobody may have such sockets, somebody may in a network of the test's own. The thread ends with
		// this goroutine, which keeps it, and so does the network once the socket is closed.
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return
		}
		if err = os.WriteFile("/proc/sys/net/ipv4/ping_group_range", []byte("0 0"), 0); err != nil {
			return
		}
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	}()
	if <-made; err != nil {
		t.Skipf("no ping sockets for this user: %v", err)
	}
	file := os.NewFile(uintptr(fd), "ping")
	pc, err := net.FilePacketConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pc.Close() })
	return pc.(*net.UDPConn)
}

func TestSocketWithoutTheOptionIsReadAsItIs(t *testing.T) {
	closed, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = closed.Close()
	for name, socket := range map[string]net.PacketConn{"closed": closed, "no UDP socket": &noSocket{closed: make(chan struct{})}} {
		conn, undo := coalesced(socket)
		if conn != socket {
			t.Errorf("%s: read through a %T", name, conn)
		}
		undo()
	}
	t.Run("unknown to the kernel", func(t *testing.T) {
		ping := pingSocket(t)
		if conn, _ := coalesced(ping); conn != net.PacketConn(ping) {
			t.Errorf("read through a %T", conn)
		}
	})
}

// What quic-go looks for.
var _ interface {
	quic.OOBCapablePacketConn
	ReadBatch([]ipv4.Message, int) (int, error)
} = (*groConn)(nil)
