package noiseconn

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"

	"github.com/postern-relay/postern/wire"
)

// A channel without a handshake.
//
//	opener    0x02 | session id 16 | n u64 | rc 32 | records...
//	answerer  0x02 | re 32 | records...   or   0x00 | refusal
const (
	channelHead   = 16 + 8 + 32
	toAnswerer    = 0
	toOpener      = 1
	channelRandom = 32
)

// OpenChannel begins the next channel of the session on s. Records may be sent at once; the
// first Recv reads the answer. A *wire.Error of CodeNoChannel from it means that the executor
// does not know the session: nobody can verify that, so the only reaction is one fresh
// handshake with the same pinned key.
func (s *Session) OpenChannel(stream wire.Stream) (*Conn, error) {
	n, err := s.take()
	if err != nil {
		return nil, err
	}
	var rc [channelRandom]byte
	rand.Read(rc[:])
	return s.openChannel(stream, n, rc)
}

func (s *Session) openChannel(stream wire.Stream, n uint64, rc [channelRandom]byte) (*Conn, error) {
	key, err := s.channelKey(toAnswerer, n, rc[:], nil)
	if err != nil {
		return nil, err
	}
	head := append(make([]byte, 0, 1+channelHead), firstChannel)
	head = append(head, s.id[:]...)
	head = binary.BigEndian.AppendUint64(head, n)
	head = append(head, rc[:]...)
	c := newConn(&headed{Stream: stream, head: head}, s.clock, newRecordCipher(key), nil)
	c.in.answer = func() (*recordCipher, error) {
		var first [1]byte
		if _, err := io.ReadFull(stream, first[:]); err != nil {
			return nil, cut(err)
		}
		switch first[0] {
		case firstChannel:
		case firstRefusal:
			return nil, refusedError(stream)
		default:
			return nil, wire.Errorf(wire.CodeProtocol, "channel answered with byte %d", first[0])
		}
		var re [channelRandom]byte
		if _, err := io.ReadFull(stream, re[:]); err != nil {
			return nil, cut(err)
		}
		key, err := s.channelKey(toOpener, n, rc[:], re[:])
		if err != nil {
			return nil, err
		}
		return newRecordCipher(key), nil
	}
	return c, nil
}

// headed puts bytes before the first Write, so that a channel's header and its first record
// leave in one call. Writes are not concurrent (Conn locks them).
type headed struct {
	wire.Stream
	head []byte
}

func (h *headed) Write(p []byte) (int, error) {
	if h.head == nil {
		return h.Stream.Write(p)
	}
	b := append(h.head, p...)
	h.head = nil
	n, err := h.Stream.Write(b)
	return max(0, n-(len(b)-len(p))), err
}

// Incoming is what begins on a stream at the executor: a handshake that ends in a Pending, or a
// channel of a known session that is open already. One of the two is set.
type Incoming struct {
	Pending *Pending
	Conn    *Conn
	Session *Session
}

// AcceptAny answers whatever a client begins on s. The context bounds it. lookup returns
// a session that may still open channels, or nil. What is wrong with a channel's header is never
// said: unknown session, used number and forged record all get CodeNoChannel.
func AcceptAny(ctx context.Context, s wire.Stream, cfg ResponderConfig, lookup func(wire.ID) *Session) (*Incoming, error) {
	stop := bound(ctx, s)
	defer stop()
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		return nil, stopped(ctx, cut(err))
	}
	switch first[0] {
	case firstHandshake:
		p, err := answer(s, cfg)
		if err != nil {
			return nil, stopped(ctx, err)
		}
		return &Incoming{Pending: p}, nil
	case firstChannel:
		c, session, err := acceptChannel(s, lookup)
		if err != nil {
			return nil, stopped(ctx, err)
		}
		return &Incoming{Conn: c, Session: session}, nil
	}
	return nil, refuseVersion(s, first[0])
}

func acceptChannel(s wire.Stream, lookup func(wire.ID) *Session) (*Conn, *Session, error) {
	refuse := func() error {
		e := &wire.Error{Code: wire.CodeNoChannel}
		writeRefusal(s, e)
		return e
	}
	var head [channelHead]byte
	if _, err := io.ReadFull(s, head[:]); err != nil {
		return nil, nil, cut(err)
	}
	n, rc := binary.BigEndian.Uint64(head[16:]), head[24:]
	rec, err := readRecord(s) // before the look-up: a refusal must not tell by its time what was wrong
	if err != nil {
		return nil, nil, err
	}
	session := lookup(wire.ID(head[:16]))
	if session == nil {
		return nil, nil, refuse()
	}
	key, err := session.channelKey(toAnswerer, n, rc, nil)
	if err != nil {
		return nil, nil, err
	}
	receive := newRecordCipher(key)
	plain, err := receive.open(rec)
	if err != nil || !session.mark(n) {
		return nil, nil, refuse()
	}
	var re [channelRandom]byte
	rand.Read(re[:])
	if key, err = session.channelKey(toOpener, n, rc, re[:]); err != nil {
		return nil, nil, err
	}
	if _, err := s.Write(append([]byte{firstChannel}, re[:]...)); err != nil {
		return nil, nil, err
	}
	c := newConn(s, session.clock, newRecordCipher(key), receive)
	c.in.first, c.in.limit = plain, wire.MaxStart
	return c, session, nil
}
