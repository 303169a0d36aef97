package quicconn

import "syscall"

// SocketStats says how many packets the kernel has dropped on this socket because its
// receive buffer was full, modulo 2^32, and how large that buffer is: in the kernel's
// bytes, which count its own bookkeeping as well, so twice what was asked for. It is not
// ok where the kernel does not tell (only Linux does) or the socket is closed or is none.
func (l *Listener) SocketStats() (drops uint64, receiveBuffer int, ok bool) {
	socket, isReal := l.socket.(syscall.Conn)
	if !isReal {
		return 0, 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, 0, false
	}
	return socketStats(raw)
}
