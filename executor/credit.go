package executor

import (
	"time"

	"github.com/postern-relay/postern/wire"
)

// inputAck is what a client knows of the input.
type inputAck struct {
	offset, limit uint64
	closed        bool
}

// inputCredit is what one conversation tells its client of the input; its writer's. New credit is told at once where the client could
// soon be waiting for it, or when the command reads no more; otherwise [wire.AckDelay] after the writer has met it, which
// the command's next output or a ping makes it do: only what the client still holds depends on it, and an
// acknowledgement for each line of somebody's typing would cost as much as the line.
type inputCredit struct {
	queue *inputQueue // nil: there is nothing to tell
	told  inputAck
	timer *time.Timer // runs while waiting is set
	// What was written is not told yet, and will be when late is set.
	waiting, late bool
}

// newInputCredit begins with what Started tells. A viewer is told no more than that.
func newInputCredit(q *inputQueue, control bool) *inputCredit {
	c := &inputCredit{timer: time.NewTimer(wire.AckDelay)}
	c.timer.Stop()
	if q != nil {
		c.told = q.ack()
	}
	if control {
		c.queue = q
	}
	return c
}

func (c *inputCredit) stop() { c.timer.Stop() }

// owing is closed when due has something to tell at once.
func (c *inputCredit) owing() <-chan struct{} {
	if c.queue == nil || c.told.closed {
		return nil
	}
	return c.queue.owing(c.told.limit)
}

// due is what is to be told now; nil for nothing.
func (c *inputCredit) due() *wire.InputAck {
	late := c.late
	c.late = false
	if c.queue == nil || c.told.closed {
		return nil
	}
	now := c.queue.ack()
	switch {
	case now == c.told:
		return nil
	case late, now.closed, now.limit-c.told.limit >= c.queue.owed():
		c.told, c.waiting = now, false
		return &wire.InputAck{Offset: now.offset, Limit: now.limit, Closed: now.closed}
	case !c.waiting:
		c.waiting = true
		c.timer.Reset(wire.AckDelay)
	}
	return nil
}
