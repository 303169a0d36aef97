package agent

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

var errPeer = errors.New("the other end of the agent's socket is another user's process")

// checkPeer wants a process of the same user at the other end (SO_PEERCRED, unix(7)), whatever the modes of the files say.
func checkPeer(conn net.Conn) error {
	u, ok := conn.(*net.UnixConn)
	if !ok {
		return errPeer
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) { cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return err
	}
	if cerr != nil {
		return cerr
	}
	if int(cred.Uid) != os.Geteuid() {
		return errPeer
	}
	return nil
}
