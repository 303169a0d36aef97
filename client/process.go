package client

import (
	"context"
	"errors"
	"io"
	"iter"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// RemoteProcess is a handle on a command of an executor: the mirror image of the
// executor's conversation. One goroutine reads the circuit, one writes what is not data:
// acknowledgements and pings.
type RemoteProcess struct {
	remote  *Remote
	ch      *channel
	info    wire.ExecInfo
	control bool
	output  received
	input   credit
	poke    chan struct{} // an acknowledgement is due
	gone    chan struct{} // closed when the circuit has ended
	workers sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	request  uint64
	requests map[uint64]chan error
}

var _ wire.ExecProcess = (*RemoteProcess)(nil)

func newRemoteProcess(r *Remote, ch *channel, s *wire.Started, after uint64, control bool) *RemoteProcess {
	info := s.Info()
	info.Attached = control
	p := &RemoteProcess{
		remote: r, ch: ch, info: info, control: control,
		poke: make(chan struct{}, 1), gone: make(chan struct{}), requests: make(map[uint64]chan error),
	}
	p.output.limit = 2 * wire.OutputWindow
	p.output.last, p.output.taken, p.output.acked = after, after, after
	p.input.sent, p.input.limit, p.input.closed = s.InputOffset, s.InputLimit, s.InputClosed
	return p
}

// ID is the exec's.
func (p *RemoteProcess) ID() wire.ExecID { return p.info.ID }

// Info is what the executor said when the handle was made.
func (p *RemoteProcess) Info() wire.ExecInfo { return p.info }

// Read implements wire.ExecProcess. What was not taken before an error of the connection is
// still returned; the error follows.
func (p *RemoteProcess) Read(ctx context.Context, r wire.ReadRequest) (wire.ReadResponse, error) {
	if p.isClosed() {
		return wire.ReadResponse{}, wire.ErrClosed
	}
	if p.output.take(r.After) && p.control {
		p.pokeWriter()
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = defaultRead
	}
	if r.Wait > 0 {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		select {
		case <-p.output.wake(r.After):
		case <-timer.C:
		case <-ctx.Done():
			return wire.ReadResponse{}, context.Cause(ctx)
		}
	}
	if ctx.Err() != nil {
		return wire.ReadResponse{}, context.Cause(ctx)
	}
	resp, ok, err := p.output.read(r.After, r.MaxBytes)
	if !ok && err != nil {
		return wire.ReadResponse{}, err
	}
	return resp, nil
}

const defaultRead = 256 << 10

// Write implements wire.ExecProcess.
func (p *RemoteProcess) Write(ctx context.Context, offset uint64, b []byte) error {
	if err := p.controls(); err != nil {
		return err
	}
	for len(b) > 0 {
		n, wait, err := p.input.next(offset, len(b), func(from uint64, skip, n int) error {
			return p.ch.conn.Send(&wire.Input{Offset: from, Data: b[skip : skip+n]})
		})
		if err != nil {
			return p.why(err)
		}
		offset += uint64(n)
		if b = b[n:]; len(b) == 0 || n > 0 {
			continue
		}
		select {
		case <-wait:
		case <-p.gone:
			return p.why(wire.ErrLost)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// CloseStdin implements wire.ExecProcess.
func (p *RemoteProcess) CloseStdin(context.Context) error {
	if err := p.controls(); err != nil {
		return err
	}
	return p.why(p.input.end(func(at uint64) error { return p.ch.conn.Send(&wire.InputEnd{Offset: at}) }))
}

// Resize implements wire.ExecProcess.
func (p *RemoteProcess) Resize(ctx context.Context, size wire.WinSize) error {
	return p.ask(ctx, func(n uint64) wire.Message { return &wire.Resize{Request: n, Size: size} })
}

// Signal implements wire.ExecProcess.
func (p *RemoteProcess) Signal(ctx context.Context, s wire.Signal) error {
	if s.Number() == 0 {
		return wire.Errorf(wire.CodeBadRequest, "unknown signal %q", string(s))
	}
	return p.ask(ctx, func(n uint64) wire.Message { return &wire.SignalMessage{Request: n, Signal: s} })
}

// Terminate implements wire.ExecProcess.
func (p *RemoteProcess) Terminate(ctx context.Context, grace time.Duration) error {
	return p.ask(ctx, func(n uint64) wire.Message { return wire.NewTerminate(n, grace) })
}

// ask sends a request and waits for its answer.
func (p *RemoteProcess) ask(ctx context.Context, make_ func(uint64) wire.Message) error {
	if err := p.controls(); err != nil {
		return err
	}
	done := make(chan error, 1)
	n, err := p.enterRequest(done, make_)
	if err != nil {
		return p.why(err)
	}
	defer p.leaveRequest(n)
	select {
	case err := <-done:
		return err
	case <-p.gone:
		select {
		case err := <-done:
			return err
		default:
			return p.ended()
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// enterRequest numbers and sends under one lock, since the executor takes numbers only in
// rising order.
func (p *RemoteProcess) enterRequest(done chan error, make_ func(uint64) wire.Message) (uint64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.request = p.remote.attempts.Add(1)
	p.requests[p.request] = done
	if err := p.ch.conn.Send(make_(p.request)); err != nil {
		delete(p.requests, p.request)
		return 0, err
	}
	return p.request, nil
}

func (p *RemoteProcess) leaveRequest(n uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.requests, n)
}

// Wake implements wire.ExecProcess.
func (p *RemoteProcess) Wake(after uint64) <-chan struct{} { return p.output.wake(after) }

// Events implements wire.ExecProcess.
func (p *RemoteProcess) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return wire.Events(ctx, p, after)
}

// Wait implements wire.ExecProcess.
func (p *RemoteProcess) Wait(ctx context.Context) (wire.ExitStatus, error) {
	return wire.WaitExit(ctx, p, p.output.takenSeq())
}

// Close implements wire.ExecProcess. It sends what is still to be acknowledged.
func (p *RemoteProcess) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.output.end(wire.ErrClosed)
	p.ch.conn.SetWriteDeadline(time.Now().Add(time.Second)) // a dead link must not hold us up
	p.sendAck()
	p.ch.conn.CloseWrite()
	p.ch.conn.Reset(wire.CodeCancelled)
	p.workers.Wait()
	p.remote.forget(p)
	return nil
}

func (p *RemoteProcess) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *RemoteProcess) controls() error {
	switch {
	case p.isClosed():
		return wire.ErrClosed
	case !p.control:
		return wire.Errorf(wire.CodePolicy, "this handle only watches")
	}
	return nil
}

// why replaces an error of the circuit by the reason that the circuit ended for.
func (p *RemoteProcess) why(err error) error {
	if err == nil || errors.Is(err, wire.ErrStdinClosed) || wire.CodeOf(err) == wire.CodeBadRequest {
		return err
	}
	select {
	case <-p.gone:
		return p.ended()
	default:
		return lostError(err)
	}
}

// ended is why the circuit has ended.
func (p *RemoteProcess) ended() error {
	p.output.mu.Lock()
	defer p.output.mu.Unlock()
	if p.output.exit != nil {
		return &wire.Error{Code: wire.CodeEnded, Text: "the command has ended"}
	}
	if p.output.err != nil {
		return p.output.err
	}
	return wire.ErrLost
}

// run starts the two workers.
func (p *RemoteProcess) run() {
	p.workers.Go(func() {
		err := p.read()
		p.output.end(err)
		p.input.shut()
		close(p.gone)
		if !errors.Is(err, io.EOF) {
			p.ch.conn.Reset(wire.CodeCancelled)
		}
	})
	p.workers.Go(p.write)
}

// read handles what the executor sends, and returns why there will be no more: io.EOF after
// the exit status, which nobody reads, and wire.ErrLost for every end that is none.
func (p *RemoteProcess) read() error {
	for {
		p.ch.conn.SetReadDeadline(time.Now().Add(wire.PingSilence))
		m, err := p.ch.conn.Recv()
		if _, ok := errors.AsType[*wire.UnsupportedError](err); ok {
			continue // a newer executor says more; none of it is needed
		}
		if err != nil {
			p.output.mu.Lock()
			exited := p.output.exit != nil
			p.output.mu.Unlock()
			if exited {
				return io.EOF
			}
			return lostError(err)
		}
		if err := p.handle(m); err != nil {
			return err
		}
	}
}

func (p *RemoteProcess) handle(m wire.Message) error {
	switch m := m.(type) {
	case *wire.Output:
		return p.output.add(wire.Event{Seq: m.Seq, Chunk: &wire.Chunk{Seq: m.Seq, Stream: m.Stream, Data: m.Data}})
	case *wire.GapMessage:
		return p.output.add(wire.Event{Seq: m.To, Gap: &wire.Gap{From: m.From, To: m.To, Bytes: m.Bytes}})
	case *wire.Exit:
		return p.output.add(wire.Event{Seq: m.Seq, Exit: &m.Status})
	case *wire.InputAck:
		p.input.grant(m.Limit, m.Closed)
	case *wire.Done:
		p.mu.Lock()
		done := p.requests[m.Request]
		delete(p.requests, m.Request)
		p.mu.Unlock()
		if done != nil {
			done <- m.Err()
		}
	case *wire.Superseded:
		return wire.Errorf(wire.CodeSuperseded, "another client took over")
	case *wire.Refused:
		return m.Err()
	case *wire.Ping:
		if lag := p.ch.session.Clock() - time.Duration(min(m.Clock, 1<<40))*time.Millisecond; lag > wire.PingLag {
			return wire.ErrLost
		}
	default:
		return wire.Errorf(wire.CodeProtocol, "the executor sent a %T", m)
	}
	return nil
}

// write sends acknowledgements and pings. The goroutines that call Write, Signal and
// their like send for themselves.
func (p *RemoteProcess) write() {
	ping := time.NewTicker(wire.PingInterval)
	defer ping.Stop()
	for {
		select {
		case <-p.poke:
			p.sendAck()
		case <-ping.C:
			p.ch.conn.Send(&wire.Ping{Clock: uint64(p.ch.session.Clock() / time.Millisecond)})
		case <-p.gone:
			return
		}
	}
}

// sendAck has no use for an error: the reader meets it too.
func (p *RemoteProcess) sendAck() {
	if !p.control {
		return
	}
	if seq := p.output.toAck(); seq > 0 {
		p.ch.conn.Send(&wire.Ack{Seq: seq})
	}
}

func (p *RemoteProcess) pokeWriter() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}
