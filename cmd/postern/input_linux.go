package main

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// widen gives a pipe room for what is read at once. Of one that may not have it, less is read at a time.
func widen(r io.Reader) {
	f, ok := r.(*os.File)
	if !ok {
		return
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, readAhead) })
}
