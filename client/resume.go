package client

import (
	"context"
	"io"
	"time"

	"github.com/postern-relay/postern/wire"
)

// newRemoteProcess makes a handle of the first answer about an exec.
func newRemoteProcess(r *Remote, ch *channel, answer wire.Message, o wire.AttachOptions) (*RemoteProcess, *conversation, error) {
	started, ok := answer.(*wire.Started)
	if !ok {
		return nil, nil, breach("the executor answered with a %T", answer)
	}
	p := &RemoteProcess{remote: r, info: started.Info(), owner: started.Owner, control: o.Control}
	p.keepGeneration(started)
	p.info.Attached = o.Control
	if p.owner == "" {
		p.owner = o.Owner
	}
	p.ctx, p.cancel = context.WithCancel(r.ctx)
	p.output.limit, p.output.epoch = 2*wire.OutputWindow, started.LogEpoch
	p.output.last, p.output.taken, p.output.acked, p.output.origin = o.After, o.After, o.After, o.After
	c := newConversation(p, ch)
	var err error
	if c.fed, err = p.input.begin(started, true); err != nil {
		p.cancel()
		return nil, nil, &verdict{err}
	}
	p.current = c
	return p, c, nil
}

// run keeps the handle alive from circuit to circuit, until it has Exit or an error that no
// other circuit would mend.
func (p *RemoteProcess) run(c *conversation) {
	var b *comeback
	for {
		err := c.serve()
		if err != io.EOF {
			c.channel.conn.Reset(wire.CodeCancelled)
		}
		if p.output.exited() {
			p.output.end(io.EOF) // nobody reads it: Exit comes first
			p.ended(nil)
			return
		}
		p.mu.Lock()
		p.current = nil
		p.mu.Unlock()
		if b == nil || c.worked(err) {
			b = newComeback(p.remote.patience)
		}
		if c, err = p.comeBack(b, err); err != nil {
			p.end(plain(err))
			p.ended(plain(err))
			return
		}
	}
}

// comeBack makes another circuit in place of one that was lost for a reason.
func (p *RemoteProcess) comeBack(b *comeback, reason error) (*conversation, error) {
	switch {
	case p.ctx.Err() != nil:
		return nil, wire.ErrClosed
	case isFinal(reason):
		return nil, outcome(reason)
	case b.patience < 0:
		return nil, reason
	}
	began := time.Now()
	p.remote.observer.Lost(reason)
	p.remote.interrupted(p.info.ID, reason, 0)
	ctx, cancel := b.within(p.ctx)
	defer cancel()
	for b.pause(ctx, reason) {
		c, err := p.attach(ctx)
		switch {
		case err == nil:
			p.remote.observer.Resumed(nil)
			p.remote.interrupted(p.info.ID, nil, time.Since(began))
			return c, nil
		case isFinal(err):
			p.remote.observer.Resumed(err)
			return nil, outcome(err)
		case ctx.Err() == nil: // else only our own patience is over
			reason = err
		}
	}
	if p.ctx.Err() != nil {
		return nil, wire.ErrClosed
	}
	p.remote.observer.Resumed(reason)
	return nil, b.givenUp(reason)
}

// ended tells how a command that was started here has ended; err is why that is not known.
func (p *RemoteProcess) ended(err error) {
	switch {
	case !p.started: // an exec of somebody else's
	case err == nil:
		p.remote.observer.Ended(p.output.exitStatus(), nil)
	case p.ctx.Err() == nil: // else the handle was closed, and nobody waits to know
		p.remote.observer.Ended(nil, err)
	}
}

// attach opens a circuit that goes on where everything stopped.
func (p *RemoteProcess) attach(ctx context.Context) (*conversation, error) {
	after, epoch := p.output.position()
	ch, answer, err := p.remote.open(ctx, func(clock time.Duration, _ wire.ID) wire.Message {
		return &wire.Attach{
			Deadline: deadline(clock), ID: p.info.ID, Instance: p.remote.instance, Attempt: p.remote.attempts.Add(1),
			After: after, Control: p.control, LogEpoch: &epoch, Owner: p.owner, Generation: p.generation,
		}
	})
	if err != nil {
		return nil, err
	}
	c, err := p.adopt(ch, answer)
	if err != nil {
		code := wire.CodeCancelled
		if isVerdict(err) {
			code = wire.CodeOf(err)
		}
		ch.conn.Reset(code)
		return nil, err
	}
	return c, nil
}

// adopt makes the current conversation of a circuit whose first answer is here.
func (p *RemoteProcess) adopt(ch *channel, answer wire.Message) (*conversation, error) {
	started, ok := answer.(*wire.Started)
	switch {
	case !ok:
		return nil, breach("the executor answered with a %T", answer)
	case started.ID != p.info.ID:
		return nil, breach("the executor answered about another exec, %s", started.ID)
	}
	c := newConversation(p, ch)
	err := p.output.goOn(started.LogEpoch)
	if err != nil {
		return nil, &verdict{err}
	}
	c.skips = p.output.skips()
	switch {
	case c.skips:
		p.input.shut() // whatever reads it is not what was fed so far
	case p.control:
		if c.fed, err = p.input.begin(started, false); err != nil {
			return nil, &verdict{err}
		}
	}
	p.keepGeneration(started)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, wire.ErrClosed
	}
	p.current = c
	return c, nil
}

// keepGeneration takes over which control this is. Only the goroutine that comes back uses it.
func (p *RemoteProcess) keepGeneration(started *wire.Started) {
	if p.control {
		p.generation = started.Generation
	}
}

// isFinal reports whether the executor has said that there is no way back, or has broken the
// protocol. What anybody else says, or what time can mend, is not final.
func isFinal(err error) bool {
	if !isVerdict(err) {
		return false
	}
	switch wire.CodeOf(err) {
	case wire.CodeSuperseded, wire.CodeRevoked, wire.CodeUnauthorized, wire.CodeNotFound, wire.CodeUnknown, wire.CodePolicy,
		wire.CodeConflict, wire.CodeVersion, wire.CodeProtocol, wire.CodeBadRequest, wire.CodeUnsupported:
		return true
	}
	return false
}

// outcome is what a final error says about an exec that did start.
func outcome(err error) error {
	if wire.CodeOf(err) == wire.CodeNotFound {
		return wire.Errorf(wire.CodeUnknown, "the executor does not know this exec any more: its outcome is unknown")
	}
	return err
}
