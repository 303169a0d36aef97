package egress

import (
	"net"
	"os"
)

// FileListener is net.FileListener for a file that somebody else may close at any time, which is os.ErrClosed then. The listener is a
// copy: both are to be closed.
func FileListener(f *os.File) (l net.Listener, err error) {
	raw, err := f.SyscallConn()
	if err != nil { // there is no file
		return nil, err
	}
	// The number is the file's as long as this runs, and not that of another one.
	if raw.Control(func(uintptr) { l, err = net.FileListener(f) }) != nil {
		return nil, os.ErrClosed
	}
	return l, err
}
