package quicconn

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Places in the array that SO_MEMINFO fills (linux/sock_diag.h).
const (
	meminfoReceiveBuffer = 1
	meminfoDrops         = 8
	meminfoWords         = 9
)

func socketStats(raw syscall.RawConn) (drops uint64, receiveBuffer int, ok bool) {
	var info [meminfoWords]uint32
	size := uint32(unsafe.Sizeof(info))
	err := raw.Control(func(fd uintptr) {
		// x/sys has no call of its own for an option that is an array.
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_MEMINFO,
			uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
		ok = errno == 0 && size == uint32(unsafe.Sizeof(info)) // a kernel before 4.12 has no drops in it
	})
	if err != nil || !ok {
		return 0, 0, false
	}
	return uint64(info[meminfoDrops]), int(info[meminfoReceiveBuffer]), true
}
