package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// epochs are the state epochs in which ids were first tried, of the latest few thousand.
type epochs struct {
	mu    sync.Mutex
	of    map[wire.ExecID]wire.ID
	order []wire.ExecID
}

const epochsKept = 4096

// first is the epoch in which id was first tried: this one, unless there was one before.
func (e *epochs) first(id wire.ExecID, now wire.ID) wire.ID {
	e.mu.Lock()
	defer e.mu.Unlock()
	if epoch, tried := e.of[id]; tried {
		return epoch
	}
	if e.of == nil {
		e.of = make(map[wire.ExecID]wire.ID)
	}
	if len(e.order) == epochsKept {
		delete(e.of, e.order[0])
		e.order = append(e.order[:0], e.order[1:]...)
	}
	e.of[id] = now
	e.order = append(e.order, id)
	return now
}

// startAtMost is for how long after its first try a Start may be repeated: an executor
// remembers longer what it started (PROTOCOL.md 9.8).
const startAtMost = 24 * time.Hour

// Start implements wire.ExecBackend. Once the request may have arrived and its answer is lost it
// is repeated, which starts nothing twice, until there is an answer, ctx ends or the patience is
// over. An error that is wire.ErrLost means that the command may be running; any other, that
// it is not, unless its code is CodeUnknown. One is the relay's word alone: that the circuit which would
// have carried the request could not be opened.
func (r *Remote) Start(ctx context.Context, p wire.ExecParams) (wire.ExecProcess, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	m := wire.NewStart(p)
	m.Instance = r.instance
	sent := 0
	request := func(clock time.Duration, epoch wire.ID) wire.Message {
		sent++
		// Another epoch later on means that the executor may have forgotten this id.
		m.Epoch = r.epochs.first(p.ID, epoch)
		m.Deadline, m.Attempt = deadline(clock), r.attempts.Add(1)
		return m
	}
	ch, answer, err := r.open(ctx, request)
	if err != nil && leavesDoubt(err, sent) {
		err = &lossError{reason: plain(err)}
	}
	if err != nil && isLost(err) && r.patience >= 0 && ctx.Err() == nil {
		ch, answer, err = r.startAgain(ctx, p.ID, request, err)
	}
	if err != nil {
		r.observer.Ended(nil, plain(err))
		return nil, plain(err)
	}
	return r.begin(ch, answer, wire.AttachOptions{Control: true}, true)
}

// leavesDoubt reports whether a request that was sent so often may have been carried out, although err
// is no loss. Only what the executor says inside Noise is proof: no_channel, and every reason why another
// circuit or handshake failed after it, can come from whoever carries the bytes.
func leavesDoubt(err error, sent int) bool {
	_, after := errors.AsType[*afterUnproven](err)
	return sent > 0 && !isVerdict(err) && !isLost(err) && !errors.Is(err, noiseconn.ErrUnsendable) && (after || !isRelayRefusal(err))
}

// startAgain repeats a request whose answer was lost for a reason.
func (r *Remote) startAgain(ctx context.Context, id wire.ExecID, request opening, reason error) (*channel, wire.Message, error) {
	b := newComeback(min(r.patience, startAtMost))
	r.observer.Lost(reason)
	r.interrupted(id, reason, 0)
	trying, cancel := b.within(ctx)
	defer cancel()
	stop := context.AfterFunc(r.ctx, cancel) // Close
	defer stop()
	for b.pause(trying, reason) {
		ch, answer, err := r.open(trying, request)
		switch {
		case err == nil:
			r.observer.Resumed(nil)
			r.interrupted(id, nil, time.Since(b.lost))
			return ch, answer, nil
		case isDecision(err):
			return nil, nil, err
		case isFinal(err):
			return nil, nil, &lossError{reason: plain(err)}
		case trying.Err() == nil:
			reason = err
		}
	}
	switch {
	case r.ctx.Err() != nil:
		return nil, nil, &lossError{reason: wire.ErrClosed}
	case ctx.Err() != nil:
		return nil, nil, &lossError{reason: context.Cause(ctx)}
	}
	r.observer.Resumed(reason)
	return nil, nil, b.givenUp(reason)
}

// isDecision reports whether a refusal of a repeated Start says that this command does not run.
// Others can come before the executor has looked for the exec that the first one started.
func isDecision(err error) bool {
	if !isVerdict(err) {
		return false
	}
	switch wire.CodeOf(err) {
	case wire.CodeConflict, wire.CodePolicy, wire.CodeSandbox, wire.CodeBadRequest, wire.CodeLimit,
		wire.CodeNotFoundCmd, wire.CodeNotExec, wire.CodeUnknown:
		return true
	}
	return false
}
