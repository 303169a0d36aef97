package relaytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
	"time"

	"github.com/postern-relay/postern/wire/quicconn"
)

// Ports that no kernel gives to a socket which asks for any: those begin at 32768 on Linux, at 49152 elsewhere.
const firstPort, lastPort = 20000, 32000

// FreeAddress is a UDP address of the loopback, as host:port, whose port nobody else gets by chance. So a relay that was
// stopped finds it free again, which it may not if its port is one of those that are given to whoever dials.
func FreeAddress(t interface{ Fatal(...any) }) string {
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", firstPort+rand.N(lastPort-firstPort))
		if free, err := net.ListenPacket("udp", address); err == nil {
			free.Close()
			return address
		}
	}
	t.Fatal("no free UDP port on the loopback")
	return ""
}

// listen opens the socket. A process that another test is about to start has copies of all descriptors until it executes its
// program, also of the one that was just closed.
func (r *Relay) listen() *quicconn.Listener {
	r.t.Helper()
	for end := time.Now().Add(time.Minute); ; <-time.After(time.Millisecond) {
		l, err := quicconn.Listen(r.address, quicconn.ListenOptions{Secret: r.Key.ECDH().Bytes()})
		if err == nil {
			return l
		}
		if !errors.Is(err, syscall.EADDRINUSE) || time.Now().After(end) {
			r.t.Fatal(err)
		}
	}
}
