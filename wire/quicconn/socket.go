package quicconn

import (
	"net"
	"os"
	"sync"
	"time"

	"github.com/quic-go/quic-go"
)

// openSocket makes every UDP socket of this package. How they are read, those of callers
// too, is a matter of coalesced.
func openSocket(network string, local *net.UDPAddr) (net.PacketConn, error) {
	return net.ListenUDP(network, local)
}

// silenceBufferWarning keeps quic-go from printing a line through package log of whatever
// program this is part of. It prints when the kernel caps the buffers it asks for, once a
// process, and only an environment variable stops it. So the variable is set for the
// length of one call that makes quic-go look at it, on a socket that is none, and put
// back: later sockets find that the line is done with.
func silenceBufferWarning() { silenceOnce() }

var silenceOnce = sync.OnceFunc(func() {
	const name = "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING"
	before, had := os.LookupEnv(name)
	if err := os.Setenv(name, "true"); err != nil {
		return // the line appears: ugly, not wrong
	}
	t := &quic.Transport{Conn: &noSocket{closed: make(chan struct{})}}
	_ = t.Close() // it initialises what it closes
	if had {
		_ = os.Setenv(name, before)
	} else {
		_ = os.Unsetenv(name)
	}
})

// noSocket has no buffers to size and nothing to read.
type noSocket struct {
	once   sync.Once
	closed chan struct{}
}

func (s *noSocket) ReadFrom([]byte) (int, net.Addr, error) {
	<-s.closed
	return 0, nil, net.ErrClosed
}

func (s *noSocket) WriteTo(b []byte, _ net.Addr) (int, error) { return len(b), nil }
func (s *noSocket) LocalAddr() net.Addr                       { return &net.UDPAddr{} }
func (s *noSocket) SetDeadline(time.Time) error               { return nil }
func (s *noSocket) SetWriteDeadline(time.Time) error          { return nil }

// SetReadDeadline is how quic-go stops its reader.
func (s *noSocket) SetReadDeadline(time.Time) error { return s.Close() }

func (s *noSocket) Close() error {
	s.once.Do(func() { close(s.closed) })
	return nil
}
