package noiseconn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Conn carries messages in records over one stream. Send may be called by several
// goroutines; Recv by one. The first error in a direction is final for it: a record that was
// sealed and not sent, or not opened, leaves the two ends apart for good.
//
// Whoever gets a Conn owns the stream below it, and ends it with CloseWrite and reading to
// io.EOF, or with Reset.
type Conn struct {
	stream  wire.Stream
	secrets *secrets // of the handshake on this stream; nil on a derived channel
	founded time.Duration
	clock   Clock

	out struct {
		sync.Mutex
		cipher *recordCipher
		err    error
	}
	in struct {
		cipher  *recordCipher
		answer  func() (*recordCipher, error) // reads the peer's half of a channel's key, once
		first   []byte                        // a record opened before there was a Conn
		started bool                          // a whole message was read
		limit   int                           // of the first message
		rest    int                           // of the others
		err     error
	}
}

// ErrUnsendable is in the error of Send for a message that breaks the schema or its limits. It
// leaves the connection usable.
var ErrUnsendable = errors.New("message cannot be sent")

// bufPool holds buffers for one record of a full chunk.
var bufPool = sync.Pool{New: func() any {
	b := make([]byte, 0, 2+recordHead+wire.MaxChunk+64+padTo+tagSize)
	return &b
}}

func newConn(s wire.Stream, clock Clock, send *recordCipher, receive *recordCipher) *Conn {
	c := &Conn{stream: s, clock: clock}
	c.out.cipher, c.in.cipher = send, receive
	c.in.limit, c.in.rest = wire.MaxMessage, wire.MaxMessage
	return c
}

// LimitMessages lowers what Recv accepts to n bytes a message, for a conversation whose
// messages are all short. Call it before the first Recv.
func (c *Conn) LimitMessages(n int) { c.in.limit, c.in.rest = n, n }

// Send encodes, seals and writes one message, each record in one call of the stream's
// Write. It blocks while the stream takes no more.
func (c *Conn) Send(m wire.Message) error {
	c.out.Lock()
	defer c.out.Unlock()
	if c.out.err != nil {
		return c.out.err
	}
	p := bufPool.Get().(*[]byte)
	defer bufPool.Put(p)
	buf, err := wire.Append((*p)[:2+recordHead], m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnsendable, err) // nothing was sealed: the connection is as it was
	}
	if cap(buf) <= 2*cap(*p) {
		*p = buf
	}
	if body := len(buf) - 2 - recordHead; body > maxBody {
		return c.fail(c.writeParts(buf[2+recordHead:]))
	}
	return c.fail(c.writeRecord(kindLast, buf))
}

// writeParts sends a long message in records of one chunk each.
func (c *Conn) writeParts(msg []byte) error {
	buf := make([]byte, 0, 2+recordHead+wire.MaxChunk+tagSize)
	for {
		n := min(len(msg), wire.MaxChunk)
		kind := byte(kindPart)
		if n == len(msg) {
			kind = kindLast
		}
		if err := c.writeRecord(kind, append(buf[:2+recordHead], msg[:n]...)); err != nil {
			return err
		}
		if msg = msg[n:]; kind == kindLast {
			return nil
		}
	}
}

func (c *Conn) writeRecord(kind byte, buf []byte) error {
	rec, err := c.out.cipher.seal(frameRecord(buf, kind))
	if err != nil {
		return err
	}
	_, err = c.stream.Write(rec)
	return err
}

func (c *Conn) fail(err error) error {
	if err != nil {
		c.out.err = err
	}
	return err
}

// CloseWrite sends FIN and ends the writing direction: the peer's Recv returns io.EOF
// after the last message. Later calls do nothing.
func (c *Conn) CloseWrite() error {
	c.out.Lock()
	defer c.out.Unlock()
	if errors.Is(c.out.err, errFinished) {
		return nil
	}
	if c.out.err != nil {
		return c.out.err
	}
	err := c.writeRecord(kindFin, make([]byte, 2+recordHead, 2+padTo+tagSize))
	if err == nil {
		err = c.stream.CloseWrite()
	}
	if err != nil {
		return c.fail(err)
	}
	c.out.err = errFinished
	return nil
}

var errFinished = errors.New("the writing direction is closed")

// Reset ends both directions at once with a code; it also unblocks Send and Recv.
func (c *Conn) Reset(code wire.Code) { c.stream.Reset(code) }

// SetReadDeadline bounds Recv. A Recv that ran into it cannot be repeated.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.stream.SetReadDeadline(t) }

// SetWriteDeadline bounds Send in the same manner.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.stream.SetWriteDeadline(t) }

// Recv returns the next message. Bytes it holds stay valid. It returns io.EOF after a
// FIN, and io.ErrUnexpectedEOF when the stream ends without one: a cut is never an end.
// A *wire.UnsupportedError leaves the connection usable, any other error does not.
func (c *Conn) Recv() (wire.Message, error) {
	if c.in.err != nil {
		return nil, c.in.err
	}
	b, err := c.recvBytes()
	if err != nil {
		c.in.err = err
		return nil, err
	}
	m, err := wire.Decode(b)
	if err != nil {
		if _, ok := errors.AsType[*wire.UnsupportedError](err); !ok {
			err = wire.Errorf(wire.CodeProtocol, "%v", err)
			c.in.err = err
		}
		return nil, err
	}
	return m, nil
}

func (c *Conn) recvBytes() ([]byte, error) {
	var msg []byte
	for {
		kind, body, err := c.nextRecord()
		if err != nil {
			return nil, err
		}
		switch kind {
		case kindFin:
			if msg != nil {
				return nil, wire.Errorf(wire.CodeProtocol, "end in the middle of a message")
			}
			return nil, io.EOF
		case kindPart, kindLast:
			limit := c.in.rest
			if !c.in.started {
				limit = c.in.limit
			}
			if len(msg)+len(body) > limit {
				return nil, wire.Errorf(wire.CodeProtocol, "message of more than %d bytes", limit)
			}
			if kind == kindLast && msg == nil {
				c.in.started = true
				return body, nil
			}
			msg = append(msg, body...)
			if kind == kindLast {
				c.in.started = true
				return msg, nil
			}
		}
	}
}

func (c *Conn) nextRecord() (kind byte, body []byte, err error) {
	if c.in.answer != nil {
		cipher, err := c.in.answer()
		if err != nil {
			return 0, nil, err
		}
		c.in.cipher, c.in.answer = cipher, nil
	}
	plain := c.in.first
	c.in.first = nil
	if plain == nil {
		rec, err := readRecord(c.stream)
		if err != nil {
			return 0, nil, err
		}
		if plain, err = c.in.cipher.open(rec); err != nil {
			return 0, nil, wire.Errorf(wire.CodeProtocol, "%v", err)
		}
	}
	kind, body, err = parsePlaintext(plain)
	if err != nil {
		return 0, nil, wire.Errorf(wire.CodeProtocol, "%v", err)
	}
	return kind, body, nil
}

// readRecord reads one sealed record. The buffer is made when the first byte of the
// body is there: an announced length alone costs the reader nothing.
func readRecord(r io.Reader) ([]byte, error) {
	var head [3]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, cut(err)
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n < minRecord {
		return nil, wire.Errorf(wire.CodeProtocol, "record of %d bytes", n)
	}
	rec := make([]byte, n)
	rec[0] = head[2]
	if _, err := io.ReadFull(r, rec[1:]); err != nil {
		return nil, cut(err)
	}
	return rec, nil
}

// cut makes sure that the end of the bytes is not taken for the end of the messages.
func cut(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// refusedError is what a peer said without proof, before there were keys: a hint.
func refusedError(r io.Reader) error {
	m, err := wire.ReadFrame(r)
	if err != nil {
		return fmt.Errorf("unreadable refusal: %w", cut(err))
	}
	refused, ok := m.(*wire.Refused)
	if !ok {
		return wire.Errorf(wire.CodeProtocol, "got a %T where a refusal was announced", m)
	}
	return refused.Err()
}
