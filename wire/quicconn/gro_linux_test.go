package quicconn

import (
	"bytes"
	"encoding/binary"
	"net"
	"slices"
	"testing"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

// control is a control message as the kernel writes it.
func control(level, kind int, body []byte) []byte {
	b := make([]byte, unix.CmsgSpace(len(body)))
	binary.NativeEndian.PutUint64(b, uint64(unix.CmsgLen(len(body)))) // 4 bytes on 32 bits, and then overwritten
	binary.NativeEndian.PutUint32(b[unix.SizeofCmsghdr-8:], uint32(level))
	binary.NativeEndian.PutUint32(b[unix.SizeofCmsghdr-4:], uint32(kind))
	copy(b[unix.CmsgLen(0):], body)
	return b
}

func number(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// batchOf is what quic-go reads into.
func batchOf(n, size, controls int) []ipv4.Message {
	ms := make([]ipv4.Message, n)
	for i := range ms {
		ms[i].Buffers, ms[i].OOB = [][]byte{make([]byte, size)}, make([]byte, controls)
	}
	return ms
}

// datagram is one as it was read.
type datagram struct {
	data, controls []byte
	from           net.Addr
	flags          int
}

func datagrams(ms []ipv4.Message) (all []datagram) {
	for _, m := range ms {
		all = append(all, datagram{bytes.Clone(m.Buffers[0][:m.N]), bytes.Clone(m.OOB[:m.NN]), m.Addr, m.Flags})
	}
	return all
}

// drawMessage is a message of the kernel, and the datagrams that it is made of.
func drawMessage(t *rapid.T) (ipv4.Message, []datagram) {
	possible := [][]byte{
		control(unix.IPPROTO_IP, unix.IP_TOS, []byte{byte(rapid.IntRange(0, 3).Draw(t, "ecn"))}),
		control(unix.IPPROTO_IP, unix.IP_PKTINFO, rapid.SliceOfN(rapid.Byte(), 12, 12).Draw(t, "packet info of IPv4")),
		control(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, number(uint32(rapid.IntRange(0, 3).Draw(t, "class")))),
		control(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, rapid.SliceOfN(rapid.Byte(), 20, 20).Draw(t, "packet info of IPv6")),
	}
	var controls []byte
	for _, c := range possible {
		if rapid.Bool().Draw(t, "has it") {
			controls = append(controls, c...)
		}
	}
	from := &net.UDPAddr{IP: net.IPv4(192, 0, 2, 1), Port: rapid.IntRange(1, 65535).Draw(t, "port")}
	data := rapid.SliceOfN(rapid.Byte(), 0, 20_000).Draw(t, "data")
	m := ipv4.Message{Buffers: [][]byte{slices.Concat(data, []byte("left from another read"))}, N: len(data), Addr: from}
	segment := len(data)
	if rapid.Bool().Draw(t, "coalesced") {
		// Also none at all, and more than there is.
		said := rapid.OneOf(rapid.Just(uint32(0)), rapid.Uint32Range(1, 1452), rapid.Uint32()).Draw(t, "segment")
		if 0 < said && said < uint32(len(data)) {
			segment = int(said)
		}
		at := rapid.IntRange(0, 1).Draw(t, "first or last") * len(controls)
		m.OOB = slices.Insert(slices.Clone(controls), at, control(unix.IPPROTO_UDP, unix.UDP_GRO, number(said))...)
	} else {
		m.OOB = slices.Clone(controls)
	}
	m.NN = len(m.OOB)
	m.OOB = append(m.OOB, make([]byte, groControls-len(m.OOB))...)
	var want []datagram
	for piece := range slices.Chunk(data, max(1, segment)) {
		want = append(want, datagram{data: piece, controls: controls, from: from})
	}
	if len(data) == 0 {
		want = []datagram{{controls: controls, from: from}}
	}
	return m, want
}

func TestDatagramsComeOutAsTheyWereSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, want := new(groConn), []datagram(nil)
		for range rapid.IntRange(1, groMost).Draw(t, "messages") {
			m, made := drawMessage(t)
			c.messages, want = append(c.messages, m), append(want, made...)
		}
		c.filled = len(c.messages)
		c.couple()
		var got []datagram
		for c.next < c.filled {
			ms := batchOf(rapid.IntRange(1, groMost).Draw(t, "batch"), 20_000, 128)
			n, err := c.ReadBatch(ms, 0)
			if err != nil || n == 0 {
				t.Fatalf("%d datagrams, %v", n, err)
			}
			got = append(got, datagrams(ms[:n])...)
		}
		if len(got) != len(want) {
			t.Fatalf("%d datagrams, want %d", len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i].data, want[i].data) || !bytes.Equal(got[i].controls, want[i].controls) || got[i].from != want[i].from || got[i].flags != 0 {
				t.Fatalf("datagram %d of %d is %+v, want %+v", i, len(want), got[i], want[i])
			}
		}
	})
}

func TestDatagramThatDoesNotFitIsCutAndTheNextIsWhole(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 2)
	tr := newTrain(data, control(unix.IPPROTO_UDP, unix.UDP_GRO, number(10)))
	small, whole := batchOf(1, 4, 0)[0], batchOf(1, 10, 0)[0]
	if last := tr.handOn(&small); last || small.N != 4 || small.Flags&unix.MSG_TRUNC == 0 {
		t.Errorf("%d bytes with flags %#x, last: %v", small.N, small.Flags, last)
	}
	if last := tr.handOn(&whole); !last || string(whole.Buffers[0][:whole.N]) != "0123456789" || whole.Flags != 0 {
		t.Errorf("%q with flags %#x, last: %v", whole.Buffers[0][:whole.N], whole.Flags, last)
	}
}

func TestControlMessagesAreCutBetweenThem(t *testing.T) {
	ecn := control(unix.IPPROTO_IP, unix.IP_TOS, []byte{3})
	info := control(unix.IPPROTO_IP, unix.IP_PKTINFO, make([]byte, 12))
	tr := newTrain([]byte("x"), slices.Concat(ecn, info))
	m := batchOf(1, 10, len(ecn)+len(info)-1)[0]
	if tr.handOn(&m); !bytes.Equal(m.OOB[:m.NN], ecn) || m.Flags&unix.MSG_CTRUNC == 0 {
		t.Errorf("control messages %x with flags %#x, want only %x", m.OOB[:m.NN], m.Flags, ecn)
	}
}

// FuzzControls: whatever the kernel says, quic-go gets whole control messages and every byte once.
func FuzzControls(f *testing.F) {
	gro := control(unix.IPPROTO_UDP, unix.UDP_GRO, number(7))
	ecn := control(unix.IPPROTO_IP, unix.IP_TOS, []byte{1})
	f.Add([]byte{}, uint16(100), uint8(128))
	f.Add(gro, uint16(100), uint8(128))
	f.Add(slices.Concat(gro, ecn), uint16(21), uint8(24))
	f.Add(slices.Concat(ecn, gro[:unix.CmsgLen(2)]), uint16(100), uint8(128))
	f.Add(gro[:unix.SizeofCmsghdr-1], uint16(100), uint8(0))
	f.Add(control(unix.IPPROTO_UDP, unix.UDP_GRO, number(1<<31)), uint16(100), uint8(128))
	f.Fuzz(func(t *testing.T, controls []byte, size uint16, room uint8) {
		data := make([]byte, size)
		for i := range data {
			data[i] = byte(i ^ i>>8)
		}
		var got []byte
		tr := newTrain(data, controls)
		for last := false; !last; {
			m := batchOf(1, groMessage, int(room))[0]
			last = tr.handOn(&m)
			if m.N == 0 && size > 0 {
				t.Fatal("an empty datagram of a message that is not")
			}
			got = append(got, m.Buffers[0][:m.N]...)
			for rest := m.OOB[:m.NN]; len(rest) > 0; {
				if len(rest) < unix.SizeofCmsghdr {
					t.Fatalf("%d bytes are no control message", len(rest))
				}
				header, _, after, err := unix.ParseOneSocketControlMessage(rest)
				if err != nil || header.Level == unix.IPPROTO_UDP && header.Type == unix.UDP_GRO {
					t.Fatalf("%+v handed on, %v", header, err)
				}
				rest = after
			}
		}
		if !bytes.Equal(got, data) {
			t.Fatalf("%d bytes came out of %d, or others", len(got), len(data))
		}
	})
}
