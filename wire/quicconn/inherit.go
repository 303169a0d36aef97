package quicconn

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// InheritedSocket makes a socket for [ListenPacket] of a descriptor that was handed down,
// such as systemd's 3 of a unit with ListenDatagram=. It closes file in any case; the
// caller closes the socket, after the Listener.
func InheritedSocket(file *os.File) (*net.UDPConn, error) {
	pc, err := net.FilePacketConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		if pc != nil {
			_ = pc.Close()
		}
		return nil, fmt.Errorf("inherited descriptor %s is no datagram socket (systemd: ListenDatagram=): %w", file.Name(), err)
	}
	socket, ok := pc.(*net.UDPConn)
	if !ok {
		_ = pc.Close()
		return nil, fmt.Errorf("inherited descriptor %s is a socket of %s, want a UDP socket (systemd: ListenDatagram=)",
			file.Name(), pc.LocalAddr().Network())
	}
	if err := checkSocket(socket); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return socket, nil
}

// checkSocket makes a UDP socket that somebody else opened fit to listen on, with the
// options that one of openSocket's has. quic-go sets the rest on both alike: buffers,
// don't fragment, ECN, and the address that a packet was sent to. Whether an IPv6 socket
// takes IPv4 as well was settled when it was bound (systemd: BindIPv6Only=).
func checkSocket(socket *net.UDPConn) error {
	if socket.RemoteAddr() != nil {
		return fmt.Errorf("socket on %s is connected to %s: a relay needs one for everybody", socket.LocalAddr(), socket.RemoteAddr())
	}
	if a, ok := socket.LocalAddr().(*net.UDPAddr); !ok || a.Port == 0 {
		return fmt.Errorf("socket on %s is not bound to a port", socket.LocalAddr())
	}
	return keepPort(socket)
}
