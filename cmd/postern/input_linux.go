package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// pipe is how input is read best: a pipe from an opening of its own, which the runtime can wait for beside all else. What is
// shared with other processes stays as it is: to make that non-blocking would be their surprise. What is no pipe, or may not be
// opened again, is read as it is.
func pipe(r io.Reader) (_ io.Reader, done func()) {
	f, ok := r.(*os.File)
	if !ok {
		return r, func() {}
	}
	info, err := f.Stat()
	if err != nil || info.Mode().Type() != fs.ModeNamedPipe {
		return r, func() {}
	}
	var own *os.File
	if !onDescriptor(f, func(fd uintptr) {
		// One that cannot be read is not to become one that can.
		if flags, errGet := unix.FcntlInt(fd, unix.F_GETFL, 0); errGet != nil || flags&unix.O_ACCMODE == unix.O_WRONLY {
			err = fs.ErrPermission
			return
		}
		own, err = os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
	}) || err != nil {
		return r, func() {}
	}
	return own, func() { own.Close() }
}

// widen gives a pipe room for what is read at once, unless it has as much. Those of one user have a limit together, so that is only
// for one that carries much.
func widen(r io.Reader) {
	f, ok := r.(*os.File)
	if !ok {
		return
	}
	onDescriptor(f, func(fd uintptr) {
		if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil && size < readAhead {
			_, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, readAhead) // it does without
		}
	})
}

// onDescriptor does something with a file's descriptor, and reports whether it could.
func onDescriptor(f *os.File, do func(fd uintptr)) bool {
	raw, err := f.SyscallConn()
	return err == nil && raw.Control(do) == nil
}
