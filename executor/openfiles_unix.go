//go:build unix

package executor

import "syscall"

// openFiles is how many descriptors this process may have.
func openFiles() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return 1024
	}
	return uint64(l.Cur)
}
