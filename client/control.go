package client

import (
	"context"
	"errors"
	"time"

	"github.com/postern-relay/postern/wire"
)

// List implements wire.ExecBackend.
func (r *Remote) List(ctx context.Context) ([]wire.ExecInfo, error) {
	return once(ctx, r, func() ([]wire.ExecInfo, error) { return r.list(ctx) })
}

func (r *Remote) list(ctx context.Context) ([]wire.ExecInfo, error) {
	ch, answer, err := r.open(ctx, func(clock time.Duration, _ wire.ID) wire.Message {
		return &wire.Control{Deadline: deadline(clock), Verb: wire.VerbList}
	})
	if err != nil {
		return nil, err
	}
	defer ch.conn.Reset(wire.CodeCancelled)
	stop := context.AfterFunc(ctx, func() { ch.conn.Reset(wire.CodeCancelled) })
	defer stop()
	var infos []wire.ExecInfo
	for {
		list, ok := answer.(*wire.List)
		if !ok {
			return nil, wire.Errorf(wire.CodeProtocol, "the executor answered with a %T", answer)
		}
		for _, e := range list.Execs {
			infos = append(infos, e.Info())
		}
		if !list.More {
			ch.conn.CloseWrite()
			return infos, nil
		}
		ch.conn.SetReadDeadline(time.Now().Add(wire.PingSilence))
		if answer, err = ch.conn.Recv(); err != nil {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			return nil, lostError(err)
		}
	}
}

// Signal implements wire.ExecBackend. An error that is wire.ErrLost leaves open whether it
// arrived.
func (r *Remote) Signal(ctx context.Context, ref wire.ExecRef, s wire.Signal) error {
	if s.Number() == 0 {
		return wire.Errorf(wire.CodeBadRequest, "unknown signal %q", string(s))
	}
	return r.control(ctx, ref, &wire.Control{Verb: wire.VerbSignal, Signal: s})
}

// Terminate implements wire.ExecBackend; see Signal for its errors.
func (r *Remote) Terminate(ctx context.Context, ref wire.ExecRef, grace time.Duration) error {
	return r.control(ctx, ref, wire.NewTerminateControl(grace))
}

// Remove implements wire.ExecBackend; see Signal for its errors.
func (r *Remote) Remove(ctx context.Context, ref wire.ExecRef) error {
	return r.control(ctx, ref, &wire.Control{Verb: wire.VerbRemove})
}

// once does what may be done twice, since it acts once: it tries once more where the answer was
// lost. Where that leaves things as open as before, the first loss is the error.
func once[T any](ctx context.Context, r *Remote, do func() (T, error)) (T, error) {
	v, err := do()
	if err != nil && isLost(err) && r.patience >= 0 && ctx.Err() == nil {
		if again, second := do(); second == nil || isAnswer(second) {
			v, err = again, second
		}
	}
	if err != nil {
		err = plain(err)
	}
	return v, err
}

// isAnswer reports whether an error is the executor's answer to a request that it has read.
func isAnswer(err error) bool {
	if _, unsent := errors.AsType[*errUnsent](err); unsent || !isVerdict(err) {
		return false
	}
	switch wire.CodeOf(err) {
	case wire.CodeLate, wire.CodeNoChannel, wire.CodeInternal, wire.CodeShutdown:
		return false
	}
	return true
}

// control acts on an exec by a conversation of its own.
func (r *Remote) control(ctx context.Context, ref wire.ExecRef, m *wire.Control) error {
	if ref.ID.IsZero() {
		return wire.Errorf(wire.CodeNotFound, "no exec %s", ref.ID)
	}
	// An instance of its own: an executor carries out the numbers of one in rising order only, and
	// two circuits, or this one and a handle's that is coming back, may overtake each other.
	instance := wire.ID(wire.NewExecID())
	m.ID, m.Owner, m.Instance, m.Request = &ref.ID, ref.Owner, &instance, 1
	repeated := false
	_, err := once(ctx, r, func() (none struct{}, err error) {
		err = r.act(ctx, m)
		if code := wire.CodeOf(err); repeated && m.Verb == wire.VerbRemove && isVerdict(err) && (code == wire.CodeNotFound || code == wire.CodeUnknown) {
			err = nil // it is gone, by the first of the two
		}
		repeated = true
		return none, err
	})
	return err
}

func (r *Remote) act(ctx context.Context, m *wire.Control) error {
	ch, answer, err := r.open(ctx, func(clock time.Duration, _ wire.ID) wire.Message {
		m.Deadline = deadline(clock)
		return m
	})
	if err != nil {
		return err
	}
	defer ch.conn.Reset(wire.CodeCancelled)
	if _, ok := answer.(*wire.Done); !ok {
		return breach("the executor answered with a %T", answer)
	}
	ch.conn.CloseWrite()
	return nil
}
