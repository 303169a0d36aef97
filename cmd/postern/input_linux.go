package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// pipe is how input is read best: where it is a pipe, one with room for what is read at once, and from an opening of its own, which
// the runtime can wait for beside all else. What is shared with other processes stays as it is: to make that non-blocking
// would be their surprise. Where something of it may not be, r is read as it is.
func pipe(r io.Reader) (_ io.Reader, done func()) {
	f, ok := r.(*os.File)
	if !ok {
		return r, func() {}
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		return r, func() {}
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return r, func() {}
	}
	var own *os.File
	if raw.Control(func(fd uintptr) {
		_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, readAhead)
		own, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	}) != nil || err != nil {
		return r, func() {}
	}
	return own, func() { own.Close() }
}
