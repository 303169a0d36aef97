package quicconn

import "golang.org/x/sys/unix"

// physicalMemory is the memory of this machine in bytes, zero if the kernel does not say.
func physicalMemory() uint64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return n
}
