package quicconn

import (
	"encoding/binary"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// What a groConn reads into: messages of the kernel, which are never longer than an IP
// packet. One is enough until several wait at a time; then it is twice as many, up to what
// quic-go reads at a time by itself. Pages that nothing was read into are not resident: a
// client that moves little has 4 KiB of each.
const (
	groMessage  = 1 << 16
	groMost     = 8
	groControls = 256 // of control messages; today's kernels have at most 120, for IPv4 on a socket for both
)

// groConn is a UDP socket that lets the kernel put datagrams of one sender together
// (UDP_GRO), and takes them apart again for quic-go, which has nothing of the kind but
// reads through a conn's own ReadBatch. The kernel puts together only what follows each
// other with equal addresses, lengths (the last may be shorter) and ECN bits, so the
// control messages of the whole hold for each. Where nothing is put together this is
// recvmmsg as quic-go does it. Sending, and all else, is the embedded socket's.
//
// ReadBatch is for one goroutine, quic-go's; closing the socket or its deadline ends it.
type groConn struct {
	*net.UDPConn
	batch    *ipv4.PacketConn
	messages []ipv4.Message
	filled   int // messages that the last read has filled in
	next     int // the first of them that has something left
	train    train
}

// train is what is left of one message of the kernel: datagrams of segment bytes each, of
// which the last may have less.
type train struct {
	data     []byte
	segment  int // zero, or more than there is: it is one datagram
	controls []byte
}

// coalesced makes a socket read coalesced datagrams, which then must be read through what
// it returns, until undo. A kernel before 5.0, or what is no UDP socket, is left as it is.
// So it is with POSTERN_DISABLE_GRO=1 in the environment, for drivers that get it wrong.
func coalesced(socket net.PacketConn) (conn net.PacketConn, undo func()) {
	u, ok := socket.(*net.UDPConn)
	if !ok {
		return socket, func() {}
	}
	// Explicitly off as well: a socket that systemd keeps may still have it from the program before.
	disabled, _ := strconv.ParseBool(os.Getenv("POSTERN_DISABLE_GRO"))
	if err := setCoalescing(u, !disabled); err != nil || disabled {
		return socket, func() {}
	}
	c := &groConn{UDPConn: u, batch: ipv4.NewPacketConn(u)}
	c.grow(1)
	return c, func() { _ = setCoalescing(u, false) } // it fails on a closed socket, which is past caring
}

func setCoalescing(socket syscall.Conn, on bool) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	value := 0
	if on {
		value = 1
	}
	var set error
	if err := raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, value)
	}); err != nil {
		return err
	}
	return set
}

// grow makes room for so many messages at a time.
func (c *groConn) grow(n int) {
	for len(c.messages) < n {
		c.messages = append(c.messages, ipv4.Message{Buffers: [][]byte{make([]byte, groMessage)}, OOB: make([]byte, groControls)})
	}
}

// ReadBatch fills in at least one of ms, each with one datagram in its first buffer, in
// the order of arrival. It reads from the kernel only when nothing is left of the last read.
func (c *groConn) ReadBatch(ms []ipv4.Message, flags int) (int, error) {
	if c.next == c.filled {
		if err := c.fill(flags); err != nil {
			return 0, err
		}
	}
	n := 0
	for ; n < len(ms) && c.next < c.filled; n++ {
		from := &c.messages[c.next]
		ms[n].Addr, ms[n].Flags = from.Addr, from.Flags
		if last := c.train.handOn(&ms[n]); last {
			c.next++
			c.couple()
		}
	}
	return n, nil
}

func (c *groConn) fill(flags int) error {
	if c.filled == len(c.messages) && c.filled < groMost { // all were needed
		c.grow(2 * c.filled)
	}
	c.next, c.filled = 0, 0
	n, err := c.batch.ReadBatch(c.messages, flags)
	if err != nil {
		return err
	}
	c.filled = n
	c.couple()
	return nil
}

// couple begins with the next message, if there is one.
func (c *groConn) couple() {
	if c.next < c.filled {
		m := &c.messages[c.next]
		c.train = newTrain(m.Buffers[0][:m.N], m.OOB[:m.NN])
	}
}

// newTrain takes a message apart. It edits controls.
func newTrain(data, controls []byte) train {
	n, segment := splitControls(controls, controls)
	return train{data: data, segment: segment, controls: controls[:n]}
}

// handOn copies the next datagram to m, and tells whether it was the last. As with any
// read, what does not fit m is cut off: quic-go's packets do, and others are not its own.
func (t *train) handOn(m *ipv4.Message) (last bool) {
	size := len(t.data)
	if t.segment > 0 {
		size = min(size, t.segment)
	}
	m.N = copy(m.Buffers[0], t.data[:size])
	if m.N < size {
		m.Flags |= unix.MSG_TRUNC
	}
	if m.NN, _ = splitControls(m.OOB, t.controls); m.NN < len(t.controls) {
		m.Flags |= unix.MSG_CTRUNC
	}
	t.data = t.data[size:]
	return len(t.data) == 0
}

// splitControls copies to dst, of which n bytes are then used, the control messages except
// the one that says how long each datagram is (udp(7), UDP_GRO), which it returns: zero
// without one. dst may be controls. It ends at one that is malformed or does not fit, for
// quic-go closes its socket over half a control message.
func splitControls(dst, controls []byte) (n, segment int) {
	for len(controls) >= unix.SizeofCmsghdr { // what parses them looks no further
		header, body, rest, err := unix.ParseOneSocketControlMessage(controls)
		if err != nil {
			break
		}
		size := len(controls) - len(rest)
		if header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO {
			segment = segmentSize(body)
		} else if n+size <= len(dst) {
			n += copy(dst[n:], controls[:size])
		} else {
			break
		}
		controls = rest
	}
	return n, segment
}

// segmentSize is an int of C. What can be no length of a datagram is none.
func segmentSize(body []byte) int {
	if len(body) < 4 {
		return 0
	}
	if n := binary.NativeEndian.Uint32(body); n <= groMessage {
		return int(n)
	}
	return 0
}
