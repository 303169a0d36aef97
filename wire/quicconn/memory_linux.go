package quicconn

import "golang.org/x/sys/unix"

// physicalMemory is the memory of this machine in bytes, zero if the kernel does not say.
func physicalMemory() uint64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return uint64(info.Totalram) * uint64(info.Unit) //nolint:unconvert // 32 bits on some machines
}
