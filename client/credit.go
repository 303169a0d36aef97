package client

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// credit is how much stdin the executor takes now. Sending happens under its lock, so that
// the bytes of concurrent writers leave in the order of their offsets.
type credit struct {
	mu      sync.Mutex
	sent    uint64
	limit   uint64
	ended   bool
	closed  bool
	changed chan struct{}
}

// next sends as much of n bytes at offset as there is credit for, and returns how many are
// now sent, what was known before included. With none, wait is closed when there may be more.
func (c *credit) next(offset uint64, n int, send func(from uint64, skip, n int) error) (int, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	end := offset + uint64(n)
	switch {
	case end < offset || offset > c.sent:
		return 0, nil, wire.Errorf(wire.CodeBadRequest, "input at offset %d leaves a hole after %d", offset, c.sent)
	case end <= c.sent:
		return n, nil, nil
	case c.closed || c.ended:
		return 0, nil, wire.ErrStdinClosed
	}
	skip := int(c.sent - offset)
	take := min(n-skip, wire.MaxChunk, int(min(c.limit-c.sent, wire.MaxChunk)))
	if take == 0 {
		if c.changed == nil {
			c.changed = make(chan struct{})
		}
		return skip, c.changed, nil
	}
	if err := send(c.sent, skip, take); err != nil {
		return 0, nil, err
	}
	c.sent += uint64(take)
	return skip + take, nil, nil
}

// grant takes over what an InputAck says. A limit never goes back.
func (c *credit) grant(limit uint64, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limit = max(c.limit, limit)
	c.closed = c.closed || closed
	wakeAll(&c.changed)
}

// end sends the end of the input once; a command that reads no more needs none.
func (c *credit) end(send func(at uint64) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.closed {
		return nil
	}
	c.ended = true
	return send(c.sent)
}

// shut wakes everybody who waits for credit: the circuit has ended.
func (c *credit) shut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	wakeAll(&c.changed)
}
