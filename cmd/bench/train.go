//go:build linux

package main

import (
	"encoding/binary"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// train is datagrams in a row of one sender: all of segment bytes, but for the last, which may have less. A segment of zero is one
// datagram. The kernel puts them together and takes them apart again (UDP_GRO, UDP_SEGMENT), as network cards do on a real
// path: a forwarder that took each by itself would be what is measured.
type train struct {
	data    []byte
	segment int
}

// datagrams is how many there are.
func (t train) datagrams() int64 {
	if t.segment == 0 || len(t.data) == 0 {
		return 1
	}
	return int64((len(t.data) + t.segment - 1) / t.segment)
}

// coalesce asks for trains. A kernel without gives single datagrams.
func coalesce(c *net.UDPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1) })
}

// trainReader reads what comes to a socket. It is for one goroutine.
type trainReader struct {
	socket   *net.UDPConn
	data     [64 << 10]byte
	controls [128]byte
}

// next is the next train, a copy of its own, and who has sent it.
func (r *trainReader) next() (train, netip.AddrPort, error) {
	n, controls, _, from, err := r.socket.ReadMsgUDPAddrPort(r.data[:], r.controls[:])
	if err != nil {
		return train{}, from, err
	}
	return train{append([]byte(nil), r.data[:n]...), segmentOf(r.controls[:controls])}, from, nil
}

// segmentOf is the length of a segment as the kernel has said it; zero: nothing was put together.
func segmentOf(controls []byte) int {
	messages, err := unix.ParseSocketControlMessage(controls)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		if m.Header.Level == unix.IPPROTO_UDP && m.Header.Type == unix.UDP_GRO && len(m.Data) >= 4 {
			return int(binary.NativeEndian.Uint32(m.Data))
		}
	}
	return 0
}

// send sends it to an address, or where the socket is connected to with none.
func (t train) send(socket *net.UDPConn, to netip.AddrPort) error {
	var controls []byte
	if t.segment > 0 && t.segment < len(t.data) {
		controls = make([]byte, unix.CmsgSpace(2))
		head := (*unix.Cmsghdr)(unsafe.Pointer(&controls[0]))
		head.Level, head.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
		head.SetLen(unix.CmsgLen(2))
		binary.NativeEndian.PutUint16(controls[unix.CmsgLen(0):], uint16(t.segment))
	}
	_, _, err := socket.WriteMsgUDPAddrPort(t.data, controls, to)
	return err
}
