package quicconn

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// keepPort takes back what systemd sets on every socket, SO_REUSEADDR. For UDP that lets
// any other user's process that sets it too bind the same port and get the packets.
func keepPort(socket *net.UDPConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return fmt.Errorf("socket on %s: %w", socket.LocalAddr(), err)
	}
	var set error
	err = raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 0)
	})
	if err := errors.Join(err, set); err != nil {
		return fmt.Errorf("socket on %s: take back SO_REUSEADDR: %w", socket.LocalAddr(), err)
	}
	return nil
}
