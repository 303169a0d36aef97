package client

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// input is the stdin that Write accepted. What the executor has not confirmed is held, so that
// another circuit can go on wherever the executor stopped taking it over.
type input struct {
	mu      sync.Mutex
	base    uint64 // where held begins: everything before was taken over
	held    []byte // only ever appended to and cut at the front, so that pieces of it can be sent
	sent    uint64 // highest offset that any circuit was given
	limit   uint64 // credit
	ended   bool   // by CloseStdin
	closed  bool   // the command reads no more
	err     error  // the handle has ended
	changed chan struct{}
}

// maxHeld bounds what is held for an executor that gives more credit than it should.
const maxHeld = wire.InputQueue

// inputCursor is how far one circuit has got.
type inputCursor struct {
	at    uint64
	ended bool
}

func (in *input) accepted() uint64 { return in.base + uint64(len(in.held)) }

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
	case end < offset || offset > have:
		return 0, nil, wire.Errorf(wire.CodeBadRequest, "input at offset %d leaves a hole after %d", offset, have)
	case end <= have:
		return len(b), nil, nil
	case in.closed || in.ended:
		return 0, nil, wire.ErrStdinClosed
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
	in.held = append(in.held, fresh...)
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
	rest := in.held[c.at-in.base:]
	switch {
	case len(rest) > 0:
		m := &wire.Input{Offset: c.at, Data: rest[:min(len(rest), wire.MaxChunk)]}
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
		in.held, in.base = in.held[offset-in.base:], offset
		if len(in.held) == 0 {
			in.held = nil
		}
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
	in.closed, in.base, in.held = true, in.accepted(), nil
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
