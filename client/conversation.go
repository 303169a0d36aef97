package client

import (
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/wire"
)

// conversation is one circuit of a handle: the mirror image of the executor's. One goroutine
// reads; a second one sends what the executor lacks from before, then acknowledgements and
// pings. Callers of the handle send input and requests themselves, so that none of
// them waits for another's data.
type conversation struct {
	process *RemoteProcess
	channel *channel
	skips   bool // the log is another one than the handle's
	began   time.Time
	heard   bool          // something came after Started; the reader's
	broken  atomic.Bool   // nothing can be sent any more
	poke    chan struct{} // the writer has something to do
	waking  atomic.Bool   // it will be poked for an acknowledgement
	gone    chan struct{} // closed when the reader has ended

	feeding sync.Mutex
	fed     inputCursor

	asking     sync.Mutex
	asked      uint64 // highest request number sent here
	unanswered atomic.Int64
}

func newConversation(p *RemoteProcess, ch *channel) *conversation {
	return &conversation{process: p, channel: ch, began: time.Now(), poke: make(chan struct{}, 1), gone: make(chan struct{})}
}

// worked reports whether the circuit, which ended with err, was of any use. One that was not has
// not ended an interruption: or an executor that fails after each Started was never given up.
func (c *conversation) worked(err error) bool {
	return c.heard || time.Since(c.began) >= lastPause && !errors.Is(err, os.ErrDeadlineExceeded)
}

// serve carries the conversation until it ends, and returns why.
func (c *conversation) serve() error {
	c.process.workers.Go(c.write)
	defer close(c.gone)
	return c.read()
}

// read handles what the executor sends, and returns why there will be no more: io.EOF after
// the exit status, and wire.ErrLost for every end that is none.
func (c *conversation) read() error {
	for {
		silence := wire.PingSilence
		if c.broken.Load() {
			silence = wire.HeaderTimeout
		}
		c.channel.conn.SetReadDeadline(time.Now().Add(silence))
		m, err := c.channel.conn.Recv()
		if _, ok := errors.AsType[*wire.UnsupportedError](err); ok {
			continue // a newer executor says more; none of it is needed
		}
		if err != nil {
			if c.process.output.exited() {
				return io.EOF
			}
			if err = lostError(err); !errors.Is(err, wire.ErrLost) { // a code of a reset decides nothing
				err = &lossError{reason: err}
			}
			return err
		}
		if err := c.handle(m); err != nil {
			return err
		}
		c.heard = true
	}
}

func (c *conversation) handle(m wire.Message) error {
	p := c.process
	switch m := m.(type) {
	case *wire.Output:
		return c.arrived(wire.Event{Seq: m.Seq, Chunk: &wire.Chunk{Seq: m.Seq, Stream: m.Stream, Data: m.Data}})
	case *wire.GapMessage:
		return c.arrived(wire.Event{Seq: m.To, Gap: &wire.Gap{From: m.From, To: m.To, Bytes: m.Bytes}})
	case *wire.Exit:
		err := c.arrived(wire.Event{Seq: m.Seq, Exit: m.Ended()})
		if err == nil {
			p.input.shut()
			p.requests.end(errEnded)
		}
		return err
	case *wire.InputAck:
		if err := p.input.acked(m); err != nil {
			return &verdict{err}
		}
	case *wire.Done:
		p.requests.answer(m.Request, m.Err())
		if c.unanswered.Add(-1) == maxUnanswered-1 {
			c.pokeWriter() // there is room for those that wait
		}
	case *wire.Superseded:
		return &verdict{wire.Errorf(wire.CodeSuperseded, "another client took over")}
	case *wire.Refused:
		return &verdict{m.Err()}
	case *wire.Ping:
		if lag := c.channel.session.Clock() - time.Duration(min(m.Clock, 1<<40))*time.Millisecond; lag > wire.PingLag {
			return wire.ErrLost
		}
	default:
		return breach("the executor sent a %T", m)
	}
	return nil
}

var errEnded = &wire.Error{Code: wire.CodeEnded, Text: "the command has ended"}

func (c *conversation) arrived(e wire.Event) error {
	if err := c.process.output.add(e); err != nil {
		return &verdict{err}
	}
	if c.skips {
		c.acknowledge(c.process.output.ackDue()) // no consumer takes it
	}
	return nil
}

// write sends acknowledgements and pings, after what the executor lacks from before.
func (c *conversation) write() {
	c.sendInput()
	c.sendRequests()
	c.sendAck()
	ping := time.NewTicker(wire.PingInterval)
	defer ping.Stop()
	for {
		select {
		case <-c.poke:
			c.sendRequests()
			c.sendAck()
		case <-ping.C:
			c.send(&wire.Ping{Clock: uint64(c.channel.session.Clock() / time.Millisecond)})
		case <-c.gone:
			return
		}
	}
}

// send has no use for an error: the reader meets it too. Should only the sending be broken, what
// the executor still has to say is read before the circuit is given up.
func (c *conversation) send(m wire.Message) bool {
	err := c.channel.conn.Send(m)
	if err != nil && !c.broken.Swap(true) {
		c.channel.conn.SetReadDeadline(time.Now().Add(wire.HeaderTimeout))
	}
	return err == nil
}

// sendInput sends all that was accepted and not sent here.
func (c *conversation) sendInput() {
	c.feeding.Lock()
	defer c.feeding.Unlock()
	for {
		m := c.process.input.next(&c.fed)
		if m == nil || !c.send(m) {
			return
		}
	}
}

// sendRequests sends all that wait for an answer and were not sent here.
func (c *conversation) sendRequests() {
	c.asking.Lock()
	defer c.asking.Unlock()
	for c.unanswered.Load() < maxUnanswered {
		r := c.process.requests.after(c.asked)
		if r == nil {
			return
		}
		c.asked = r.number
		c.unanswered.Add(1)
		if !c.send(r.message) {
			return
		}
	}
}

func (c *conversation) sendAck() {
	c.waking.Store(false)
	if seq := c.process.output.toAck(); seq > 0 {
		c.send(&wire.Ack{Seq: seq})
	}
}

// acknowledge has the writer do it. An acknowledgement for each small message would cost as much as the message.
func (c *conversation) acknowledge(when urgency) {
	switch {
	case when == now:
		c.pokeWriter()
	case when == soon && !c.waking.Swap(true):
		time.AfterFunc(wire.AckDelay, c.pokeWriter)
	}
}

func (c *conversation) pokeWriter() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// close sends what is still to be sent, and ends the circuit.
func (c *conversation) close() {
	conn := c.channel.conn
	conn.SetWriteDeadline(time.Now().Add(time.Second)) // a dead link must not hold us up
	c.sendAck()
	conn.CloseWrite()
	conn.Reset(wire.CodeCancelled)
}
