package noiseconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// receiver is a Conn that hears records sealed by the reference.
func receiver(records []byte) *Conn {
	return newConn(newScript(records), nil, newRecordCipher([32]byte{1}), newRecordCipher([32]byte(fixed("records", 32))))
}

func sealer() *refRecords { return &refRecords{key: fixed("records", 32)} }

func TestPlaintextThatNoSenderMakesIsRefused(t *testing.T) {
	pad := func(n int, head ...byte) []byte { return append(head, make([]byte, n-len(head))...) }
	lastByteSet := pad(256, 0, 0, 1, 'x')
	lastByteSet[255] = 1
	body := ping(1)
	whole := append([]byte{kindLast, 0, byte(len(body))}, body...)
	cases := []struct {
		name  string
		plain []byte
	}{
		{"padding is not zero at its end", lastByteSet},
		{"padding is not zero at its beginning", pad(256, 0, 0, 0, 1)},
		{"no padding", whole},
		{"padded to another multiple", append(bytes.Clone(whole), make([]byte, 128-len(whole))...)},
		{"padded once more", append(bytes.Clone(whole), make([]byte, 512-len(whole))...)},
		{"long body padded", append([]byte{0, 0x10, 0x01}, make([]byte, 5120-3)...)},
		{"long body with one byte more", append([]byte{0, 0x10, 0x01}, make([]byte, 4098)...)},
		{"shorter than it says", pad(256, 0, 1, 0)},
		{"much shorter than it says", pad(256, 0, 0xff, 0xff)},
		{"unknown kind", pad(256, 3)},
		{"highest kind", pad(256, 0xff)},
		{"no head", nil},
		{"half a head", []byte{0, 0}},
	}
	for _, c := range cases {
		m, err := receiver(sealer().sealRaw(c.plain)).Recv()
		if wire.CodeOf(err) != wire.CodeProtocol {
			t.Errorf("%s: %v, %v, want code protocol", c.name, m, err)
		}
	}
}

func TestEndInTheMiddleOfAMessageIsAnError(t *testing.T) {
	s := sealer()
	_, err := receiver(append(s.seal(kindPart, ping(1)[:2]), s.seal(kindFin, nil)...)).Recv()
	if wire.CodeOf(err) != wire.CodeProtocol || errors.Is(err, io.EOF) {
		t.Errorf("FIN after a part: %v, want code protocol", err)
	}
	s = sealer()
	_, err = receiver(s.seal(kindPart, ping(1)[:2])).Recv()
	if err != io.ErrUnexpectedEOF {
		t.Errorf("cut after a part: %v, want io.ErrUnexpectedEOF", err)
	}
}

func TestNothingIsTakenAfterTheEnd(t *testing.T) {
	s := sealer()
	c := receiver(append(s.seal(kindFin, nil), s.seal(kindLast, ping(1))...))
	for range 2 {
		if m, err := c.Recv(); err != io.EOF {
			t.Fatalf("%v, %v, want io.EOF", m, err)
		}
	}
}

func TestEmptyPartsAreIgnored(t *testing.T) {
	s := sealer()
	b := s.seal(kindPart, nil)
	b = append(b, s.seal(kindLast, ping(1))...)
	b = append(b, s.seal(kindPart, nil)...)
	b = append(b, s.seal(kindFin, nil)...)
	c := receiver(b)
	if m, err := c.Recv(); err != nil || m.(*wire.Ping).Clock != 1 {
		t.Fatalf("%v, %v", m, err)
	}
	if _, err := c.Recv(); err != io.EOF {
		t.Fatalf("%v, want io.EOF", err)
	}
}

func TestUnsupportedMessageLeavesTheConnectionUsable(t *testing.T) {
	s := sealer()
	b := append(s.seal(kindLast, []byte{0xa1, 1, 0x18, 200}), s.seal(kindLast, ping(2))...)
	c := receiver(append(b, s.seal(kindLast, []byte("garbage"))...))
	_, err := c.Recv()
	if u, ok := errors.AsType[*wire.UnsupportedError](err); !ok || u.Got != 200 {
		t.Fatalf("unknown type: %v, want *wire.UnsupportedError", err)
	}
	if m, err := c.Recv(); err != nil || m.(*wire.Ping).Clock != 2 {
		t.Fatalf("the message after it: %v, %v", m, err)
	}
	if _, err := c.Recv(); wire.CodeOf(err) != wire.CodeProtocol {
		t.Fatalf("garbage: %v, want code protocol", err)
	}
}

// longStart is a Start message of about n bytes.
func longStart(n int) *wire.Start {
	m := wire.NewStart(wire.ExecParams{ID: wire.ExecID{1}, Argv: []string{"true"}})
	m.Instance, m.Attempt = wire.ID{1}, 1
	for range n / 65536 {
		m.Argv = append(m.Argv, cbor.ByteString(strings.Repeat("x", 65536)))
	}
	return m
}

func TestMessageOfALongStartComesFirstToTheAnsweringSideOnly(t *testing.T) {
	for _, c := range []struct {
		name      string
		answering bool
		before    int // Pings
		size      int
		ok        bool
	}{
		{"first message", true, 0, 3 << 20, true},
		{"first message above the limit", true, 0, 4 << 20, false},
		{"second message", true, 1, 3 << 20, false},
		{"second message within the common limit", true, 1, 900 << 10, true},
		{"first message to the opener", false, 0, 3 << 20, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := wiretest.Pipe()
			key := [32]byte(fixed("records", 32))
			from, to := newConn(a, nil, newRecordCipher(key), nil), newConn(b, nil, nil, newRecordCipher(key))
			if c.answering {
				to.in.limit = wire.MaxStart
			}
			sent := make(chan error, 1)
			go func() {
				for range c.before {
					from.Send(&wire.Ping{})
				}
				sent <- from.Send(longStart(c.size))
			}()
			for range c.before {
				if _, err := to.Recv(); err != nil {
					t.Fatal(err)
				}
			}
			m, err := to.Recv()
			if c.ok && err != nil || !c.ok && wire.CodeOf(err) != wire.CodeProtocol {
				t.Errorf("%v", err)
			}
			if start, ok := m.(*wire.Start); c.ok && (!ok || len(start.Argv) != 1+c.size/65536) {
				t.Errorf("got %T", m)
			}
			b.Reset(wire.CodeProtocol) // lets the sender go
			<-sent
		})
	}
}

func TestOtherLongMessageIsRefusedEvenWhenFirst(t *testing.T) {
	s := sealer()
	head, err := wire.Encode(&wire.Input{})
	if err != nil {
		t.Fatal(err)
	}
	b := s.seal(kindPart, head)
	for range 40 {
		b = append(b, s.seal(kindPart, make([]byte, wire.MaxChunk))...)
	}
	c := receiver(append(b, s.seal(kindLast, nil)...))
	c.in.limit = wire.MaxStart
	if _, err := c.Recv(); wire.CodeOf(err) != wire.CodeProtocol {
		t.Errorf("%v, want code protocol", err)
	}
}

func TestLimitedConversationTakesShortMessagesOnly(t *testing.T) {
	for _, before := range []int{0, 1} {
		for size, ok := range map[int]bool{wire.MaxHello - 100: true, wire.MaxHello + 1: false} {
			s := sealer()
			var b []byte
			for range before {
				b = append(b, s.seal(kindLast, ping(1))...)
			}
			m, err := wire.Encode(&wire.Output{Seq: 1, Stream: wire.Stdout, Data: make([]byte, size)})
			if err != nil {
				t.Fatal(err)
			}
			b = append(b, s.seal(kindPart, m[:100])...)
			c := receiver(append(b, s.seal(kindLast, m[100:])...))
			c.in.limit = wire.MaxStart
			c.LimitMessages(wire.MaxHello)
			for range before {
				if _, err := c.Recv(); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.Recv(); ok != (err == nil) || !ok && wire.CodeOf(err) != wire.CodeProtocol {
				t.Errorf("%d bytes after %d messages: %v", size, before, err)
			}
		}
	}
}

func TestConcurrentSendsArriveWholeAndInOrder(t *testing.T) {
	const senders, each = 8, 200
	a, b := wiretest.Pipe()
	key := [32]byte{1}
	from, to := newConn(a, nil, newRecordCipher(key), nil), newConn(b, nil, nil, newRecordCipher(key))
	var group sync.WaitGroup
	for s := range senders {
		group.Go(func() {
			for n := range each {
				data := bytes.Repeat([]byte{byte(s)}, n*100%40000) // some need two records
				if err := from.Send(&wire.Output{Seq: uint64(n*senders + s + 1), Stream: wire.Stdout, Data: data}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() {
		group.Wait()
		from.CloseWrite()
	}()
	var next [senders]int
	for {
		m, err := to.Recv()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		o := m.(*wire.Output)
		s, n := int(o.Seq-1)%senders, int(o.Seq-1)/senders
		if n != next[s] || !bytes.Equal(o.Data, bytes.Repeat([]byte{byte(s)}, n*100%40000)) {
			t.Fatalf("sender %d: message %d where %d is due, or other bytes", s, n, next[s])
		}
		next[s]++
	}
	if next != [senders]int{each, each, each, each, each, each, each, each} {
		t.Errorf("messages per sender: %v, want %d each", next, each)
	}
}

func TestSwappedDirectionsFail(t *testing.T) {
	p := handshake(t)
	for _, c := range []*Conn{p.client, p.server} {
		a, b := wiretest.Pipe()
		honest := newConn(a, nil, newRecordCipher(c.secrets.send), newRecordCipher(c.secrets.receive))
		swapped := newConn(b, nil, newRecordCipher(c.secrets.send), newRecordCipher(c.secrets.receive))
		if err := honest.Send(&wire.Ping{}); err != nil {
			t.Fatal(err)
		}
		if _, err := swapped.Recv(); wire.CodeOf(err) != wire.CodeProtocol {
			t.Errorf("%v, want code protocol", err)
		}
	}
}

func TestCounterHasACap(t *testing.T) {
	for _, count := range []uint64{maxRecords - 1, maxRecords} {
		c := newRecordCipher([32]byte{1})
		c.count = count
		_, err := c.seal(make([]byte, 2+256))
		if (err == nil) != (count < maxRecords) {
			t.Errorf("seal of record %d: %v", count, err)
		}
		o := newRecordCipher([32]byte{1})
		o.count = maxRecords
		if _, err := o.open(make([]byte, 256)); err == nil || errors.Is(err, errRecord) {
			t.Errorf("open above the cap: %v, want an error of the counter's", err)
		}
	}
	conn := newConn(newScript(nil), nil, newRecordCipher([32]byte{1}), nil)
	conn.out.cipher.count = maxRecords
	if err := conn.Send(&wire.Ping{}); err == nil {
		t.Error("Send above the cap succeeded")
	}
	if n := conn.stream.(*script).written.Len(); n != 0 {
		t.Errorf("%d bytes written above the cap", n)
	}
}

// failing is a stream that cannot be written to.
type failing struct{ *script }

var errFull = errors.New("no room")

func (failing) Write([]byte) (int, error) { return 0, errFull }

func TestFailedWriteIsFinal(t *testing.T) {
	good := newScript(nil)
	c := newConn(failing{good}, nil, newRecordCipher([32]byte{1}), nil)
	if err := c.Send(&wire.Ping{}); !errors.Is(err, errFull) {
		t.Fatalf("Send = %v", err)
	}
	c.stream = good // a stream that recovers does not help: a record is missing
	if err := c.Send(&wire.Ping{}); !errors.Is(err, errFull) {
		t.Errorf("second Send = %v, want the first error", err)
	}
	if err := c.CloseWrite(); !errors.Is(err, errFull) {
		t.Errorf("CloseWrite = %v, want the first error", err)
	}
	if good.written.Len() != 0 {
		t.Error("something was written after a failed record")
	}
}

func TestInvalidMessageDoesNotSpoilTheConnection(t *testing.T) {
	s := newScript(nil)
	c := newConn(s, nil, newRecordCipher([32]byte{1}), nil)
	if err := c.Send(&wire.Output{}); err == nil {
		t.Fatal("an output without a number was sent")
	}
	if err := c.Send(&wire.Ping{Clock: 3}); err != nil {
		t.Fatal(err)
	}
	kind, body, err := (&refRecords{key: append([]byte{1}, make([]byte, 31)...)}).open(s.written.Bytes())
	if err != nil || kind != kindLast || !bytes.Equal(body, ping(3)) {
		t.Errorf("first record: kind %d, body %x, %v", kind, body, err)
	}
}

func TestRecordSizesTellOnlyTheClassOfShortMessages(t *testing.T) {
	size := func(n int) int {
		s := newScript(nil)
		c := newConn(s, nil, newRecordCipher([32]byte{1}), nil)
		if err := c.Send(&wire.Output{Seq: 1, Stream: wire.Stdout, Data: make([]byte, n)}); err != nil {
			t.Fatal(err)
		}
		return int(binary.BigEndian.Uint16(s.written.Bytes()))
	}
	if one, most := size(1), size(200); one != most || one != 256+tagSize {
		t.Errorf("records of 1 and 200 bytes have %d and %d, want %d", one, most, 256+tagSize)
	}
	sizes := map[int]bool{}
	for n := range 4000 {
		sizes[size(n)] = true
	}
	if len(sizes) != 16 {
		t.Errorf("%d sizes up to 4000 bytes, want 16: %v", len(sizes), fmt.Sprint(sizes))
	}
}
