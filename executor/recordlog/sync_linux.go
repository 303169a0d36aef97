package recordlog

import (
	"os"

	"golang.org/x/sys/unix"
)

// syncData writes data, and of the file's properties only what is needed to read it again.
func syncData(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }
