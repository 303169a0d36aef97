package client

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// RemoteProcess is a handle on a command of an executor. It outlives circuits, sessions and
// connections: when one is lost it comes back by itself, and its callers wait meanwhile.
// Output goes on without a byte missing or repeated, input where the executor stopped taking it
// over, and what was asked for acts once. After [RemoteConfig].Patience without success it
// ends with wire.ErrLost.
//
// Another client that takes the control over ends the handle for good, with CodeSuperseded. An
// executor that has lost the output says so by a Gap whose Bytes are zero; what follows it is
// the exit status only.
type RemoteProcess struct {
	remote  *Remote
	info    wire.ExecInfo
	owner   string // of the exec, to find it again
	control bool
	started bool // by this handle's maker, not attached to
	// generation of the control, which whoever took over since need not give back.
	generation uint64

	output   received
	input    input
	requests requests

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	workers sync.WaitGroup // run, and the writer of each conversation

	mu      sync.Mutex
	closed  bool
	current *conversation // nil while the link is lost
}

var _ wire.ExecProcess = (*RemoteProcess)(nil)

// ID is the exec's.
func (p *RemoteProcess) ID() wire.ExecID { return p.info.ID }

// Info is what the executor said when the handle was made.
func (p *RemoteProcess) Info() wire.ExecInfo { return p.info }

// Read implements wire.ExecProcess. What was not taken before the handle ended is still
// returned; the error follows.
func (p *RemoteProcess) Read(ctx context.Context, r wire.ReadRequest) (wire.ReadResponse, error) {
	if p.isClosed() {
		return wire.ReadResponse{}, wire.ErrClosed
	}
	if when := p.output.take(r.After); when != never {
		if c := p.conversation(); c != nil {
			c.acknowledge(when)
		}
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

// Write implements wire.ExecProcess. While the link is lost it accepts as much as the executor
// gave credit for, and keeps it.
func (p *RemoteProcess) Write(ctx context.Context, offset uint64, b []byte) error {
	if err := p.controls(); err != nil {
		return err
	}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, wait, err := p.input.accept(offset, b)
		if err != nil {
			return err
		}
		if n > 0 {
			p.sendInput()
		}
		if n == len(b) {
			return nil
		}
		offset += uint64(n)
		b = b[n:]
		if n > 0 {
			continue
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// CloseStdin implements wire.ExecProcess.
func (p *RemoteProcess) CloseStdin(context.Context) error {
	if err := p.controls(); err != nil {
		return err
	}
	if err := p.input.end(); err != nil {
		return err
	}
	p.sendInput()
	return nil
}

func (p *RemoteProcess) sendInput() {
	if c := p.conversation(); c != nil {
		c.sendInput()
	}
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

// ask makes a request and waits for its answer, on whatever circuit it comes.
func (p *RemoteProcess) ask(ctx context.Context, message func(uint64) wire.Message) error {
	if err := p.controls(); err != nil {
		return err
	}
	r, err := p.requests.enter(&p.remote.attempts, message)
	if err != nil {
		return err
	}
	defer p.requests.leave(r)
	if c := p.conversation(); c != nil {
		c.sendRequests()
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// Close implements wire.ExecProcess. It sends what is still to be acknowledged. It does not wait
// for a link that is lost: input that was accepted since is dropped then.
func (p *RemoteProcess) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	c := p.current
	p.mu.Unlock()
	p.cancel() // first, so that what follows does not look like a loss
	p.end(wire.ErrClosed)
	if c != nil {
		c.close()
	}
	p.workers.Wait()
	p.remote.forget(p)
	return nil
}

// end makes every call that waits, and every later one, return err; the first reason counts.
func (p *RemoteProcess) end(err error) {
	p.output.end(err)
	p.input.fail(err)
	p.requests.end(err)
}

func (p *RemoteProcess) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

func (p *RemoteProcess) conversation() *conversation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
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
