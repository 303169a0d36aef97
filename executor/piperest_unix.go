//go:build unix

package executor

import (
	"io"
	"syscall"
)

// readNow reads what is in a pipe at this moment, without waiting and whatever its deadline. Nothing is no error; of a pipe that has no descriptor it
// knows nothing.
func readNow(pipe any, b []byte) (n int, err error) {
	c, ok := pipe.(syscall.Conn)
	if !ok {
		return 0, nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { // and not raw.Read, for which the deadline holds
		for {
			if n, failed = syscall.Read(int(fd), b); failed != syscall.EINTR {
				return
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed == syscall.EAGAIN:
		return 0, nil
	case failed != nil:
		return 0, failed
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}
