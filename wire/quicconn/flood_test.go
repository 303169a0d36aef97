package quicconn

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// forgedInitial is the first packet of a handshake as somebody sends who will never see
// an answer: the header is right, and what should be a ClientHello is noise.
func forgedInitial() []byte {
	const size, idLength = 1200, 8
	b := make([]byte, size)
	_, _ = rand.Read(b)
	b[0] = 0xc3 // long header, Initial, packet number of 4 bytes
	binary.BigEndian.PutUint32(b[1:], 1)
	b[5], b[6+idLength] = idLength, idLength // two connection ids, random
	b[7+2*idLength] = 0                      // no token
	rest := 8 + 2*idLength
	binary.BigEndian.PutUint16(b[rest:], 0x4000|uint16(size-rest-2))
	return b
}

// forge sends one packet from a port of its own and an address of 127.0.0.0/8, or from
// 127.0.0.1 where a machine has only that.
func forge(t *testing.T, to *net.UDPAddr, n int) {
	from := &net.UDPAddr{IP: net.IPv4(127, 0, byte(n>>8), byte(n)|1)}
	socket, err := net.DialUDP("udp4", from, to)
	if err != nil {
		socket, err = net.DialUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}, to)
	}
	if err != nil {
		t.Error(err)
		return
	}
	_, _ = socket.Write(forgedInitial()) // a full queue is the kernel's business
	_ = socket.Close()
}

func TestTenThousandForgedInitialsCostLittleAndKeepNobodyOut(t *testing.T) {
	const packets = 10_000
	g := NewGuard(GuardOptions{Random: noChance(t)})
	l, err := Listen("127.0.0.1:0", ListenOptions{Guard: g})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	var flood sync.WaitGroup
	flood.Go(func() {
		for n := range packets {
			forge(t, l.Addr().(*net.UDPAddr), n)
		}
	})
	attempts := 0
	dial := func() (*Conn, error) {
		for { // quic-go has room for 8 Retries at a time and drops the rest, whoever they are for
			attempts++
			c, err := Dial(t.Context(), l.Addr().String(), executor)
			if attempts == 20 || !errors.Is(err, ErrNoAnswer) {
				return c, err
			}
		}
	}
	for range 3 { // from 127.0.0.1, in whose name packets are forged too
		a, b := connect(t, l, dial)
		x, _ := openPair(t, a, b)
		x.Reset(wire.CodeCancelled)
		b.Admit()
	}
	flood.Wait()
	a, b := connect(t, l, dial) // behind the flood in the socket's queue
	openPair(t, a, b)
	b.Admit()
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := int64(after.HeapAlloc+after.StackInuse) - int64(before.HeapAlloc+before.StackInuse)
	counts := g.Counts()
	drops, _, _ := l.SocketStats()
	t.Logf("%d forged packets: %d KiB of heap and stacks more, %d handshakes in flight, the kernel dropped %d, %d attempts for 4 dials, %v",
		packets, grown>>10, g.InFlight(), drops, attempts, counts)
	if most := int64(32 << 20); grown > most {
		t.Errorf("%d bytes more, want at most %d", grown, most)
	}
	if n := g.InFlight(); n > halfOpenMost {
		t.Errorf("%d in flight, want at most %d", n, halfOpenMost)
	}
	if counts[LimitRetryToken] == 0 {
		t.Error("no proof was asked for: the flood did not reach its limit")
	}
	if counts[LimitHandshakeSource]+counts[LimitHandshakeGlobal]+counts[LimitSourcesFull] != 0 {
		t.Errorf("counts %v: somebody was refused for forged packets", counts)
	}
}
