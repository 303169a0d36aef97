package quicconn

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// handedDown is a descriptor as systemd makes it: bound, blocking, SO_REUSEADDR set, and
// with a small buffer that the unit's ReceiveBuffer= has not raised.
func handedDown(t *testing.T, address string) *os.File {
	t.Helper()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var set error
		err := raw.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		})
		if err != nil {
			return err
		}
		return set
	}}
	pc, err := config.ListenPacket(context.Background(), "udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	socket := pc.(*net.UDPConn)
	if err := socket.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	file, err := socket.File()
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.SetNonblock(int(file.Fd()), false); err != nil {
		t.Fatal(err)
	}
	return file
}

// options are those that this package, net and quic-go set or rely on.
func options(t *testing.T, socket net.PacketConn) map[string]int {
	t.Helper()
	raw, err := socket.(*net.UDPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	err = raw.Control(func(fd uintptr) {
		for name, o := range map[string][2]int{
			"SO_REUSEADDR": {unix.SOL_SOCKET, unix.SO_REUSEADDR}, "SO_REUSEPORT": {unix.SOL_SOCKET, unix.SO_REUSEPORT},
			"SO_RCVBUF": {unix.SOL_SOCKET, unix.SO_RCVBUF}, "SO_SNDBUF": {unix.SOL_SOCKET, unix.SO_SNDBUF},
			"IP_MTU_DISCOVER": {unix.IPPROTO_IP, unix.IP_MTU_DISCOVER}, "IP_RECVTOS": {unix.IPPROTO_IP, unix.IP_RECVTOS},
			"IP_PKTINFO": {unix.IPPROTO_IP, unix.IP_PKTINFO}, "UDP_GRO": {unix.IPPROTO_UDP, unix.UDP_GRO},
		} {
			n, err := unix.GetsockoptInt(int(fd), o[0], o[1])
			if err != nil {
				n = -1
			}
			got[name] = n
		}
		for name, command := range map[string]int{"descriptor flags": unix.F_GETFD, "status flags": unix.F_GETFL} {
			n, err := unix.FcntlInt(fd, command, 0)
			if err != nil {
				n = -1
			}
			got[name] = n
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestInheritedSocketIsAsGoodAsOneOfOurs(t *testing.T) {
	own, _ := listen(t, ListenOptions{})
	want := options(t, own.socket)
	file := handedDown(t, "127.0.0.1:0")
	socket, err := InheritedSocket(file)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	if file.Fd() != ^uintptr(0) {
		t.Error("the descriptor was left open")
	}
	l, err := ListenPacket(socket, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, got := range options(t, socket) {
		if got != want[name] {
			t.Errorf("%s is %d, want %d as on a socket of Listen", name, got, want[name])
		}
	}
	a, b := connect(t, l, func() (*Conn, error) { return Dial(t.Context(), l.Addr().String(), executor) })
	openPair(t, a, b)
}

func TestInheritedPortCannotBeShared(t *testing.T) {
	socket, err := InheritedSocket(handedDown(t, "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		return raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
		})
	}}
	if thief, err := config.ListenPacket(t.Context(), "udp", socket.LocalAddr().String()); err == nil {
		_ = thief.Close()
		t.Error("another socket was bound to the same port")
	}
}

func TestInheritedDescriptorThatIsNoUDPSocketIsRefused(t *testing.T) {
	tcp, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	unixgram, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer unixgram.Close()
	connected, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer connected.Close()
	for name, c := range map[string]struct {
		file func() (*os.File, error)
		says string
	}{
		"TCP":       {tcp.File, "ListenDatagram="},
		"unixgram":  {unixgram.File, "want a UDP socket"},
		"connected": {connected.File, "connected to 127.0.0.1:9"},
		"unbound": {func() (*os.File, error) {
			fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			return os.NewFile(uintptr(fd), "unbound"), err
		}, "not bound to a port"},
		"file": {func() (*os.File, error) { return os.Open("/dev/null") }, "no datagram socket"},
	} {
		file, err := c.file()
		if err != nil {
			t.Fatal(err)
		}
		socket, err := InheritedSocket(file)
		if err == nil {
			_ = socket.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want an error with %q", name, err, c.says)
		}
		if file.Fd() != ^uintptr(0) {
			t.Errorf("%s: the descriptor was left open", name)
		}
	}
	if _, err := ListenPacket(connected, ListenOptions{}); err == nil {
		t.Error("ListenPacket took a connected socket")
	}
}
