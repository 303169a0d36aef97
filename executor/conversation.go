package executor

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// conversation is one channel with a client. The goroutine of the circuit reads; where the
// conversation is about an exec a second one writes. Neither waits for the other, so a
// signal never waits behind data. A failure of either detaches the handle and ends both.
type conversation struct {
	conn    *noiseconn.Conn
	session *session
	// admit asks the current files, before anything is done for the client.
	admit   func() (*Local, error)
	backend *Local // what it answered to the first message

	process *LocalProcess
	claim   claim
	poke    chan struct{} // something for the writer in replies or acked
	acked   atomic.Uint64 // by the client, of what was sent
	sent    atomic.Uint64 // the highest number
	flight  flight        // the writer's

	mu      sync.Mutex
	replies []wire.Message
	ended   *wire.Error // before the handle came
	acting  bool        // a request is being carried out; its answer comes before Exit
}

const maxReplies = 256

func newConversation(conn *noiseconn.Conn, s *session, admit func() (*Local, error)) *conversation {
	return &conversation{conn: conn, session: s, admit: admit, poke: make(chan struct{}, 1)}
}

// serve reads the first message and does what it asks for, until the channel ends.
func (c *conversation) serve(ctx context.Context) error {
	c.conn.SetReadDeadline(time.Now().Add(wire.HandshakeTimeout))
	first, err := c.conn.Recv()
	if err == io.EOF { // a renewal: the session was all that it wanted
		return c.conn.CloseWrite()
	}
	if unsupported, ok := errors.AsType[*wire.UnsupportedError](err); ok {
		return c.refuse(wire.Errorf(wire.CodeUnsupported, "%v", unsupported))
	}
	if err != nil {
		return err
	}
	deadline, ok := openingDeadline(first)
	if !ok {
		return c.refuse(wire.Errorf(wire.CodeUnsupported, "a channel cannot begin with a %T", first))
	}
	if c.session.Clock() > deadline {
		return c.refuse(wire.Errorf(wire.CodeLate, "the request arrived too late and was not carried out"))
	}
	if c.backend, err = c.admit(); err != nil {
		return c.refuse(err)
	}
	if m, ok := first.(*wire.Control); ok {
		return c.control(ctx, m)
	}
	process, err := c.begin(ctx, first)
	if err != nil {
		return c.refuse(err)
	}
	defer process.Close()
	c.adopt(process)
	after := uint64(0)
	if m, ok := first.(*wire.Attach); ok && (m.LogEpoch == nil || *m.LogEpoch == c.process.x.epoch) {
		after = m.After
	}
	return c.run(ctx, after)
}

// begin starts or finds the exec that the first message is about.
func (c *conversation) begin(ctx context.Context, first wire.Message) (*LocalProcess, error) {
	if m, ok := first.(*wire.Attach); ok {
		c.claim = claim{m.Instance, m.Attempt, m.Generation}
		return c.backend.attach(wire.ExecRef{ID: m.ID, Owner: m.Owner}, m.Control, c.claim)
	}
	m := first.(*wire.Start) // openingDeadline knows no other
	c.claim = claim{instance: m.Instance, attempt: m.Attempt}
	p, err := c.backend.start(ctx, m.Params(), c.claim, m.Epoch)
	if _, denied := c.admit(); denied != nil {
		// Whoever ended the commands of the removed key may have come before this one was in the table.
		c.backend.endOwn(wire.CauseRevoked)
		if err == nil {
			p.Close()
		}
		return nil, denied
	}
	return p, err
}

// openingDeadline is by when the first message of a channel had to arrive.
func openingDeadline(m wire.Message) (time.Duration, bool) {
	var ms uint64
	switch m := m.(type) {
	case *wire.Start:
		ms = m.Deadline
	case *wire.Attach:
		ms = m.Deadline
	case *wire.Control:
		ms = m.Deadline
	default:
		return 0, false
	}
	const most = uint64(wire.SessionAge / time.Millisecond * 2)
	return time.Duration(min(ms, most)) * time.Millisecond, true
}

// refuse answers the first message with a reason, where the client can verify it.
func (c *conversation) refuse(err error) error {
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		e = wire.Errorf(wire.CodeInternal, "%v", err)
	}
	if err := c.conn.Send(wire.Refusal(e)); err != nil {
		return err
	}
	return c.conn.CloseWrite()
}

// run carries the conversation about one exec.
func (c *conversation) run(ctx context.Context, after uint64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var written sync.WaitGroup
	written.Go(func() {
		if err := c.write(ctx, after); err != nil {
			c.conn.Reset(endCode(err)) // the reader then ends too
		}
	})
	err := c.read()
	c.conn.SetWriteDeadline(time.Now().Add(wire.PingSilence)) // who has left may not read any more either
	cancel()
	if err == io.EOF {
		err = nil // the client detached
	}
	if err != nil {
		c.conn.Reset(endCode(err))
	}
	written.Wait()
	return err
}

// endCode is what the peer is told about err. A deadline that has passed is its silence, not a
// defect here.
func endCode(err error) wire.Code {
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) {
		return wire.CodeTimeout
	}
	return wire.CodeOf(err)
}

// end takes the handle away, also one that is still to come; the writer says why, and what the reader gets
// is void.
func (c *conversation) end(e *wire.Error) {
	c.mu.Lock()
	c.ended = e
	p := c.process
	c.mu.Unlock()
	if p != nil {
		p.end(e)
		p.Close() // the exec is nobody's from now on, however long the channel lives
	}
}

func (c *conversation) adopt(p *LocalProcess) {
	c.mu.Lock()
	c.process = p
	ended := c.ended
	c.mu.Unlock()
	if ended != nil {
		p.end(ended)
		p.Close()
	}
}

func (c *conversation) reply(m wire.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.acting = false
	if len(c.replies) >= maxReplies {
		return wire.Errorf(wire.CodeProtocol, "too many requests without reading the answers")
	}
	c.replies = append(c.replies, m)
	c.wake()
	return nil
}

func (c *conversation) wake() {
	select {
	case c.poke <- struct{}{}:
	default:
	}
}

// read handles what the client sends until it ends the channel (io.EOF) or fails.
func (c *conversation) read() error {
	for {
		c.conn.SetReadDeadline(time.Now().Add(wire.PingSilence))
		m, err := c.conn.Recv()
		if unsupported, ok := errors.AsType[*wire.UnsupportedError](err); ok {
			return wire.Errorf(wire.CodeUnsupported, "%v", unsupported)
		}
		if err != nil {
			return err
		}
		if err := c.process.usable(); wire.CodeOf(err) == wire.CodeRevoked {
			return err // it has had the time to read why
		}
		if err := c.handle(m); err != nil {
			return err
		}
	}
}

func (c *conversation) handle(m wire.Message) error {
	p := c.process
	switch m := m.(type) {
	case *wire.Input:
		return c.input(m)
	case *wire.InputEnd:
		if p.control && p.x.input != nil && p.usable() == nil {
			return p.x.input.end()
		}
	case *wire.Ack:
		if p.control && p.usable() == nil {
			p.x.log.Ack(m.Seq)
		}
		c.acked.Store(max(c.acked.Load(), min(m.Seq, c.sent.Load()))) // nobody else stores
		c.wake()
	case *wire.Resize:
		return c.request(m.Request, func() error { return p.Resize(context.Background(), m.Size) })
	case *wire.SignalMessage:
		return c.request(m.Request, func() error { return p.Signal(context.Background(), m.Signal) })
	case *wire.Terminate:
		return c.request(m.Request, func() error { return p.Terminate(context.Background(), m.Grace()) })
	case *wire.Ping:
		if lag := c.session.Clock() - time.Duration(min(m.Clock, 1<<40))*time.Millisecond; lag > wire.PingLag {
			return wire.Errorf(wire.CodeTimeout, "the channel is %v behind", lag.Round(time.Second))
		}
	default:
		return wire.Errorf(wire.CodeProtocol, "unexpected %T", m)
	}
	return nil
}

// input takes stdin over. A client never sends past its credit, so all of it has room.
// What comes for a command that reads no more is dropped: InputAck says so.
func (c *conversation) input(m *wire.Input) error {
	p := c.process
	if !p.control || p.usable() != nil || p.x.run == nil {
		return nil // superseded: late messages are void; or it ended long ago
	}
	if p.x.input == nil {
		return errNoStdin
	}
	n, err := p.offer(m.Offset, m.Data)
	switch {
	case errors.Is(err, wire.ErrStdinClosed), p.usable() != nil:
		return nil
	case err != nil:
		return err
	case n < len(m.Data):
		return wire.Errorf(wire.CodeProtocol, "input past its credit")
	}
	return nil
}

// request acts once on each number of a client instance, and answers every time.
func (c *conversation) request(number uint64, do func() error) error {
	c.mu.Lock()
	c.acting = true
	c.mu.Unlock()
	err := c.process.x.request(c.claim.instance, number, do)
	return c.reply(wire.NewDone(number, err))
}
