package client

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// input is the stdin that Write accepted. What the executor has not confirmed is held, so that
// another circuit can go on wherever the executor stopped taking it over.
type input struct {
	mu      sync.Mutex
	base    uint64   // where held begins: everything before was taken over
	held    [][]byte // pieces that are only ever filled up and cut at the front, so that they can be sent
	size    uint64   // of held
	sent    uint64   // highest offset that any circuit was given
	limit   uint64   // credit
	ended   bool     // by CloseStdin
	closed  bool     // the command reads no more
	err     error    // the handle has ended
	changed chan struct{}
}

// maxHeld bounds what is held for an executor that gives more credit than it should.
const maxHeld = wire.InputQueue

// inputCursor is how far one circuit has got.
type inputCursor struct {
	at    uint64
	ended bool
}

func (in *input) accepted() uint64 { return in.base + in.size }

// hold keeps a copy of b. Pieces are as large as a message, and never grow into other memory.
func (in *input) hold(b []byte) {
	in.size += uint64(len(b))
	for len(b) > 0 {
		last := len(in.held) - 1
		if last < 0 || len(in.held[last]) == cap(in.held[last]) {
			in.held = append(in.held, make([]byte, 0, wire.MaxChunk))
			last++
		}
		n := min(len(b), cap(in.held[last])-len(in.held[last]))
		in.held[last] = append(in.held[last], b[:n]...)
		b = b[n:]
	}
}

// release lets go of the first n bytes.
func (in *input) release(n uint64) {
	in.base += n
	in.size -= n
	for n > 0 && n >= uint64(len(in.held[0])) {
		n -= uint64(len(in.held[0]))
		in.held[0] = nil
		in.held = in.held[1:]
	}
	if n > 0 {
		in.held[0] = in.held[0][n:]
	}
	if len(in.held) == 0 {
		in.held = nil
	}
}

// piece is what is held in one piece from at on.
func (in *input) piece(at uint64) []byte {
	at -= in.base
	for _, p := range in.held {
		if at < uint64(len(p)) {
			return p[at:]
		}
		at -= uint64(len(p))
	}
	return nil
}

// accept takes over as much of b at offset as there is credit for, and returns how much of it
// is accepted now, what was known before included. With none, wait is closed when there may be
// more.
func (in *input) accept(offset uint64, b []byte) (n int, wait <-chan struct{}, err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	have, end := in.accepted(), offset+uint64(len(b))
	switch {
	case in.err != nil:
		return 0, nil, in.err
	case end <= have && end >= offset:
		return len(b), nil, nil
	case in.closed || in.ended:
		return 0, nil, wire.ErrStdinClosed
	case end < offset || offset > have:
		return 0, nil, wire.Errorf(wire.CodeBadRequest, "input at offset %d leaves a hole after %d", offset, have)
	}
	fresh := b[have-offset:]
	to := min(in.limit, in.base+maxHeld)
	if to > have {
		fresh = fresh[:min(uint64(len(fresh)), to-have)]
	} else {
		fresh = nil
	}
	n = int(have-offset) + len(fresh)
	if n == 0 {
		if in.changed == nil {
			in.changed = make(chan struct{})
		}
		return 0, in.changed, nil
	}
	in.hold(fresh)
	return n, nil, nil
}

// end accepts nothing after what was accepted.
func (in *input) end() error {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err != nil {
		return in.err
	}
	in.ended = true
	wakeAll(&in.changed)
	return nil
}

// next is what a circuit that has got to c sends next, nil for nothing. It moves c on.
func (in *input) next(c *inputCursor) wire.Message {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return nil
	}
	c.at = max(c.at, in.base)
	rest := in.piece(c.at)
	switch {
	case len(rest) > 0:
		m := &wire.Input{Offset: c.at, Data: rest}
		c.at += uint64(len(m.Data))
		in.sent = max(in.sent, c.at)
		return m
	case in.ended && !c.ended:
		c.ended = true
		return &wire.InputEnd{Offset: c.at}
	}
	return nil
}

// acked takes over what an InputAck says. A limit never goes back.
func (in *input) acked(m *wire.InputAck) error {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.confirm(m.Offset, m.Limit, m.Closed)
}

// begin takes over what Started says, on the first circuit and on every other one.
func (in *input) begin(s *wire.Started, first bool) (inputCursor, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if first {
		in.base, in.sent = s.InputOffset, s.InputOffset
	}
	if s.InputOffset < in.base && !s.InputClosed && !in.closed {
		return inputCursor{}, wire.Errorf(wire.CodeProtocol, "the executor goes back to input at %d after it had confirmed %d", s.InputOffset, in.base)
	}
	return inputCursor{at: s.InputOffset}, in.confirm(s.InputOffset, s.InputLimit, s.InputClosed)
}

func (in *input) confirm(offset, limit uint64, closed bool) error {
	if offset > in.sent {
		return wire.Errorf(wire.CodeProtocol, "the executor confirms %d bytes of input, and got %d", offset, in.sent)
	}
	if offset > in.base {
		in.release(offset - in.base)
	}
	in.limit = max(in.limit, limit)
	if closed {
		in.drop()
	}
	wakeAll(&in.changed)
	return nil
}

// shut says that the command reads no more.
func (in *input) shut() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.drop()
	wakeAll(&in.changed)
}

// drop forgets what nobody will read; its offsets stay known.
func (in *input) drop() {
	in.closed = true
	in.base, in.held, in.size = in.accepted(), nil, 0
}

// fail makes every later call end with err; the first one counts.
func (in *input) fail(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.err == nil {
		in.err = err
	}
	in.drop()
	wakeAll(&in.changed)
}
