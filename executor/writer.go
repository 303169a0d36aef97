package executor

import (
	"context"
	"math"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/wire"
)

// write sends Started, then everything that the exec has for the client, until Exit
// and FIN, or until the handle is taken away. It returns an error when the channel is of no
// more use. What holds the command back is the log, when too much of it is unacknowledged by the
// controller; what is held back here is only this channel (see flight).
func (c *conversation) write(ctx context.Context, after uint64) error {
	p, x := c.process, c.process.x
	sent := execlog.Position{Seq: after}
	if after != exitOnly {
		sent = x.log.Position(after)
	}
	credit := newInputCredit(x.input, p.control)
	defer credit.stop()
	if err := c.conn.Send(x.started(p, credit.told)); err != nil {
		return err
	}
	ping := time.NewTicker(wire.PingInterval)
	defer ping.Stop()
	for {
		select { // before more of a long log
		case <-p.gone:
			return c.sendEnd(p.usable())
		case <-ctx.Done():
			return nil
		case <-ping.C:
			credit.late = true
			if err := c.sendPing(); err != nil {
				return err
			}
		default:
		}
		more := x.log.Wake(sent.Seq)
		if err := c.sendReplies(); err != nil {
			return err
		}
		if m := credit.due(); m != nil {
			if err := c.conn.Send(m); err != nil {
				return err
			}
		}
		c.flight.ack(c.acked.Load())
		if c.flight.full() {
			more = nil
		} else if next, done, err := c.sendOutput(ctx, sent); err != nil || done {
			return err
		} else if next != sent {
			sent = next
			continue
		}
		select {
		case <-more:
		case <-credit.owing():
		case <-credit.timer.C:
			credit.late = true
		case <-c.poke:
		case <-p.gone:
			return c.sendEnd(p.usable())
		case <-ping.C:
			credit.late = true
			if err := c.sendPing(); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil // the reader has ended and says why
		}
	}
}

func (c *conversation) sendPing() error {
	return c.conn.Send(&wire.Ping{Clock: uint64(c.session.Clock() / time.Millisecond)})
}

// exitOnly as the number to go on after asks for the exit status without the output.
const exitOnly = math.MaxUint64

// sendEnd says why the client loses its handle.
func (c *conversation) sendEnd(why error) error {
	var m wire.Message
	switch code := wire.CodeOf(why); code {
	case wire.CodeSuperseded:
		c.process.x.mu.Lock()
		m = &wire.Superseded{Generation: c.process.x.generation}
		c.process.x.mu.Unlock()
	default:
		m = wire.Refusal(&wire.Error{Code: code, Text: why.Error()})
	}
	if err := c.conn.Send(m); err != nil {
		return err
	}
	return c.conn.CloseWrite()
}

func (c *conversation) sendReplies() error {
	c.mu.Lock()
	replies := c.replies
	c.replies = nil
	c.mu.Unlock()
	for _, m := range replies {
		if err := c.conn.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// sendOutput sends what the log holds after sent, and FIN after Exit.
func (c *conversation) sendOutput(ctx context.Context, sent execlog.Position) (next execlog.Position, done bool, err error) {
	if sent.Seq == exitOnly {
		if c.process.x.log.ExitStatus() == nil {
			return sent, false, nil
		}
		sent.Seq = c.process.x.log.LastSeq() - 1
	}
	r, next := c.process.x.log.ReadFrom(sent, defaultRead)
	if r.Gap != nil {
		c.flight.add(r.Gap.To, 0)
		c.sent.Store(r.Gap.To)
		if err := c.conn.Send(&wire.GapMessage{From: r.Gap.From, To: r.Gap.To, Bytes: r.Gap.Bytes}); err != nil {
			return sent, false, err
		}
	}
	for _, chunk := range r.Chunks {
		c.flight.add(chunk.Seq, len(chunk.Data))
		c.sent.Store(chunk.Seq)
		if err := c.conn.Send(&wire.Output{Seq: chunk.Seq, Stream: chunk.Stream, Data: chunk.Data}); err != nil {
			return sent, false, err
		}
	}
	if r.Exit == nil {
		return next, false, nil
	}
	if !c.settle(ctx) {
		return sent, true, nil
	}
	if err := c.sendReplies(); err != nil {
		return sent, false, err
	}
	if err := c.conn.Send(wire.NewExit(r.Next, *r.Exit)); err != nil {
		return sent, false, err
	}
	return next, true, c.conn.CloseWrite()
}

// settle waits for the request that is being carried out: a signal that ended the command
// is answered before Exit, or the client could not know that it arrived.
func (c *conversation) settle(ctx context.Context) bool {
	for {
		c.mu.Lock()
		acting := c.acting
		c.mu.Unlock()
		if !acting {
			return true
		}
		select {
		case <-c.poke:
		case <-ctx.Done():
			return false
		}
	}
}

// started is the first message of the answer to Start and Attach.
func (x *execution) started(p *LocalProcess, input inputAck) *wire.Started {
	m := &wire.Started{LogEpoch: x.epoch, Generation: p.generation, Window: wire.OutputWindow}
	m.SetInfo(x.describe())
	if x.input == nil {
		m.InputClosed = true
	} else {
		m.InputLimit, m.InputClosed = input.limit, input.closed
		m.InputOffset = min(m.InputOffset, m.InputLimit)
	}
	return m
}
