package quicconn

import (
	"net"
	"runtime"
	"syscall"
	"testing"
)

func TestSocketStatsAreTheKernels(t *testing.T) {
	l, _ := listen(t, ListenOptions{})
	drops, buffer, ok := l.SocketStats()
	if ok != (runtime.GOOS == "linux") {
		t.Fatalf("ok: %v on %s", ok, runtime.GOOS)
	}
	if ok && (drops != 0 || buffer < 4096) {
		t.Errorf("fresh socket: %d drops, buffer of %d", drops, buffer)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := l.SocketStats(); ok {
		t.Error("a closed socket has figures")
	}
}

func TestSocketStatsOfWhatIsNoSocketAreNotOK(t *testing.T) {
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	l, err := ListenPacket(unsizable{socket}, ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, _, ok := l.SocketStats(); ok {
		t.Error("figures of something that is no socket")
	}
}

func TestDroppedPacketsAreCounted(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	deaf, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer deaf.Close()
	if err := deaf.SetReadBuffer(4096); err != nil {
		t.Fatal(err)
	}
	raw, err := deaf.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	sender, err := net.DialUDP("udp4", nil, deaf.LocalAddr().(*net.UDPAddr))
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	const packets = 100 // of 1200 bytes, far above the buffer; loopback delivers within Write
	for range packets {
		if _, err := sender.Write(make([]byte, 1200)); err != nil {
			t.Fatal(err)
		}
	}
	drops, buffer, ok := socketStats(raw)
	if !ok || drops == 0 || drops > packets || buffer != 2*4096 {
		t.Errorf("%d drops of %d packets, buffer of %d, ok %v", drops, packets, buffer, ok)
	}
}

var _ syscall.Conn = (*net.UDPConn)(nil) // what SocketStats looks for
