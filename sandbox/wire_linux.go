package sandbox

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Messages between the daemon and an init: one byte of kind, then a body, over
// SOCK_SEQPACKET. Bodies are small; what can be large travels in a memfd.
const (
	msgNotices  = 'N' // init: carries the descriptor on which refused calls are told
	msgReady    = 'R' // init: confined, waits for its command
	msgError    = 'E' // init: class, stage, path, errno, text
	msgListener = 'L' // init, session: carries the daemon's listener in its network
	msgTTY      = 'T' // init: carries the terminal's master
	msgStarted  = 'S' // init: exec has succeeded
	msgExit     = 'X' // init: how the command ended; nothing else lives
	msgSetup    = 'P' // daemon: what to build, and mounts for it
	msgRun      = 'C' // daemon: the command and its stdio
	msgGo       = 'Y' // daemon: a command that was held may run
	msgSignal   = 'G' // daemon: signal and scope
	msgKill     = 'K' // daemon: kill everything
	msgFork     = 'F' // daemon to spawner: start an init
	msgMap      = 'M' // daemon to spawner: make a user namespace for a mapping
)

const (
	maxMessage = 8 << 10
	maxInline  = 32 << 10 // of a request that is sent without a memfd
	maxFDs     = maxTrees + 4
)

// recvMessage reads one message. It returns io.EOF when the other end is gone.
func recvMessage(fd, flags int) (kind byte, body []byte, fds []int, err error) {
	return recvInto(make([]byte, maxMessage), fd, flags)
}

// recvInto reads one message into buf, of which body is a part.
func recvInto(buf []byte, fd, flags int) (kind byte, body []byte, fds []int, err error) {
	oob := make([]byte, unix.CmsgSpace(maxFDs*4))
	var n, oobn, rflags int
	for {
		n, oobn, rflags, _, err = unix.Recvmsg(fd, buf, oob, flags|unix.MSG_CMSG_CLOEXEC)
		// ECONNRESET tells, once, that the other end left something unread; its own
		// last words come after that.
		if err != unix.EINTR && err != unix.ECONNRESET {
			break
		}
	}
	if err != nil {
		return 0, nil, nil, err
	}
	if oobn > 0 {
		scms, perr := unix.ParseSocketControlMessage(oob[:oobn])
		for i := range scms {
			if got, rerr := unix.ParseUnixRights(&scms[i]); rerr == nil {
				fds = append(fds, got...)
			}
		}
		err = perr
	}
	if n == 0 {
		closeAll(fds)
		return 0, nil, nil, io.EOF
	}
	if err != nil || rflags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		closeAll(fds)
		return 0, nil, nil, errors.Join(errors.New("control message is malformed"), err)
	}
	return buf[0], buf[1:n], fds, nil
}

func sendMessage(fd, flags int, kind byte, body []byte, fds ...int) error {
	msg := append([]byte{kind}, body...)
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	for {
		err := unix.Sendmsg(fd, msg, oob, nil, flags|unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// sendLarge sends a request of any length: one that is not short travels in a memfd,
// the first of the descriptors, and the body is empty.
func sendLarge(send func(kind byte, body []byte, fds ...int) error, kind byte, body []byte, fds ...int) error {
	if len(body) <= maxInline {
		return send(kind, body, fds...)
	}
	fd, err := memfd("sandbox-request", body)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return send(kind, nil, append([]int{fd}, fds...)...)
}

// recvLarge is the other end of sendLarge.
func recvLarge(fd int) (kind byte, body []byte, fds []int, err error) {
	kind, body, fds, err = recvInto(make([]byte, 1+maxInline), fd, 0)
	if err != nil || len(body) > 0 || len(fds) == 0 {
		return kind, body, fds, err
	}
	body, err = readMemfd(fds[0])
	return kind, body, fds[1:], err
}

// control is the daemon's end of the socket. It waits in the runtime's poller, so
// that a running command costs no thread.
type control struct {
	f  *os.File
	rc syscall.RawConn
}

// newControl takes over fd.
func newControl(fd int) (*control, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "sandbox-control")
	rc, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &control{f, rc}, nil
}

func (c *control) recv() (kind byte, body []byte, fds []int, err error) {
	rerr := c.rc.Read(func(fd uintptr) bool {
		kind, body, fds, err = recvMessage(int(fd), unix.MSG_DONTWAIT)
		return err != unix.EAGAIN
	})
	if rerr != nil {
		return 0, nil, nil, rerr
	}
	return kind, body, fds, err
}

func (c *control) send(kind byte, body []byte, fds ...int) error {
	var err error
	werr := c.rc.Write(func(fd uintptr) bool {
		err = sendMessage(int(fd), unix.MSG_DONTWAIT, kind, body, fds...)
		return err != unix.EAGAIN
	})
	if werr != nil {
		return errors.Join(os.ErrClosed, werr) // nothing else ends the wait
	}
	return err
}

func (c *control) close() error { return c.f.Close() }

func closeAll(fds []int) {
	for _, fd := range fds {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// memfd returns an anonymous file that holds b, with its offset at the start.
func memfd(name string, b []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	for off := 0; off < len(b); {
		n, err := unix.Pwrite(fd, b[off:], int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			unix.Close(fd)
			return -1, err
		}
		off += n
	}
	return fd, nil
}

// readMemfd reads a whole memfd and closes it.
func readMemfd(fd int) ([]byte, error) {
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, err
	}
	b := make([]byte, st.Size)
	for off := 0; off < len(b); {
		n, err := unix.Pread(fd, b[off:], int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, io.ErrUnexpectedEOF
		}
		off += n
	}
	return b, nil
}
