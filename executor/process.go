package executor

import (
	"bytes"
	"cmp"
	"context"
	"iter"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/wire"
)

// LocalProcess is a handle on a command of this machine. A controlling one has its stdin
// and its acknowledgements; a viewing one only reads.
type LocalProcess struct {
	x          *execution
	table      *table
	control    bool
	generation uint64

	gone chan struct{} // closed, superseded or revoked
	mu   sync.Mutex
	err  error            // why
	at   execlog.Position // where the last Read ended

	closing sync.Once
}

var _ wire.ExecProcess = (*LocalProcess)(nil)

const defaultRead = 256 << 10

// ID is the exec's.
func (p *LocalProcess) ID() wire.ExecID { return p.x.info.ID }

// Info describes the exec as it is now.
func (p *LocalProcess) Info() wire.ExecInfo { return p.x.describe() }

// Read implements wire.ExecProcess.
func (p *LocalProcess) Read(ctx context.Context, r wire.ReadRequest) (wire.ReadResponse, error) {
	if err := p.usable(); err != nil {
		return wire.ReadResponse{}, err
	}
	if p.control {
		p.x.log.Ack(r.After)
	}
	if r.MaxBytes <= 0 {
		r.MaxBytes = defaultRead
	}
	if r.Wait > 0 {
		timer := time.NewTimer(r.Wait)
		defer timer.Stop()
		select {
		case <-p.x.log.Wake(r.After):
		case <-timer.C:
		case <-p.gone:
			return wire.ReadResponse{}, p.usable()
		case <-ctx.Done():
			return wire.ReadResponse{}, context.Cause(ctx)
		}
	}
	if ctx.Err() != nil {
		return wire.ReadResponse{}, context.Cause(ctx)
	}
	return p.read(r.After, r.MaxBytes), nil
}

// read goes on from where the last one ended, as consumers do, or begins anywhere else.
func (p *LocalProcess) read(after uint64, limit int) (r wire.ReadResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.at
	if at.Seq != after {
		at = p.x.log.Position(after)
	}
	r, p.at = p.x.log.ReadFrom(at, limit)
	return r
}

// Write implements wire.ExecProcess.
func (p *LocalProcess) Write(ctx context.Context, offset uint64, b []byte) error {
	if err := p.controls(); err != nil {
		return err
	}
	if p.x.input == nil {
		return errNoStdin
	}
	b = bytes.Clone(b) // the caller may use its buffer again
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		changed := p.x.input.changed()
		n, err := p.offer(offset, b)
		if err != nil || n == len(b) {
			return err
		}
		offset += uint64(n)
		b = b[n:]
		select {
		case <-changed:
		case <-p.gone:
			return p.usable()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// offer is the input queue's, for the controller of this moment only: what an older one says after
// another took over would take the place of the new one's bytes.
func (p *LocalProcess) offer(offset uint64, b []byte) (int, error) {
	p.x.mu.Lock()
	defer p.x.mu.Unlock()
	if p.x.controller != p {
		return 0, cmp.Or(p.usable(), wire.ErrClosed)
	}
	return p.x.input.offer(offset, b)
}

var errNoStdin = wire.Errorf(wire.CodeBadRequest, "the command was started without standard input")

// CloseStdin implements wire.ExecProcess.
func (p *LocalProcess) CloseStdin(context.Context) error {
	if err := p.controls(); err != nil {
		return err
	}
	if p.x.input == nil {
		return errNoStdin
	}
	return p.x.input.end()
}

// Resize implements wire.ExecProcess.
func (p *LocalProcess) Resize(_ context.Context, size wire.WinSize) error {
	return p.act(func() error {
		if !p.x.info.TTY {
			return wire.Errorf(wire.CodeBadRequest, "the command has no terminal")
		}
		return p.x.run.Resize(size)
	})
}

// Signal implements wire.ExecProcess.
func (p *LocalProcess) Signal(_ context.Context, s wire.Signal) error {
	if err := p.controls(); err != nil {
		return err
	}
	return p.x.signal(s)
}

// Terminate implements wire.ExecProcess.
func (p *LocalProcess) Terminate(_ context.Context, grace time.Duration) error {
	return p.act(func() error { return p.x.terminate(wire.CauseTerminated, grace) })
}

// act does something to a running command.
func (p *LocalProcess) act(do func() error) error {
	if err := p.controls(); err != nil {
		return err
	}
	return p.x.act(do)
}

// Wake implements wire.ExecProcess.
func (p *LocalProcess) Wake(after uint64) <-chan struct{} {
	if p.usable() != nil {
		return closedChan
	}
	return p.x.log.Wake(after)
}

// Events implements wire.ExecProcess.
func (p *LocalProcess) Events(ctx context.Context, after uint64) iter.Seq2[wire.Event, error] {
	return wire.Events(ctx, p, after)
}

// Wait implements wire.ExecProcess.
func (p *LocalProcess) Wait(ctx context.Context) (wire.ExitStatus, error) {
	return wire.WaitExit(ctx, p, p.x.log.AckedSeq())
}

// Close implements wire.ExecProcess.
func (p *LocalProcess) Close() error {
	p.end(wire.ErrClosed) // unless something else has ended it
	p.closing.Do(func() {
		p.x.release(p)
		p.table.leave(p.x)
	})
	return nil
}

func (p *LocalProcess) supersede() {
	p.end(wire.Errorf(wire.CodeSuperseded, "another client took over"))
}

// end makes every method fail with err from now on; the first reason counts.
func (p *LocalProcess) end(err error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return false
	}
	p.err = err
	close(p.gone)
	return true
}

func (p *LocalProcess) usable() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *LocalProcess) controls() error {
	if err := p.usable(); err != nil {
		return err
	}
	if !p.control {
		return wire.Errorf(wire.CodePolicy, "this handle only watches")
	}
	return nil
}
