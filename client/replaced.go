package client

import (
	"context"
	"errors"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// An executor replaces its key (PROTOCOL.md 7.6).
//
//	handshake with the pinned key   Welcome.Next      names the next one   (learn)
//	handshake with the next key     Welcome.Previous  names the pinned one (confirm)
//
// Only both together are a replacement. The first alone would let an executor move its name to a machine that
// has no part in it; the second alone would let any machine take over a name.

// maxSuccessors bounds how many next keys of one executor are looked at, should it name ever others.
const maxSuccessors = 16

// learn begins to check the next key that the executor names, each one once.
func (r *Remote) learn(w *wire.Welcome) {
	if w.Next == nil || r.cfg.OpenCircuitTo == nil || r.cfg.ExecutorKeyReplaced == nil {
		return
	}
	next, err := keys.NewPublicKey(keys.Executor, *w.Next)
	if err != nil || next == r.cfg.Executor || !r.isNews(next) {
		return
	}
	r.checks.start(func(ctx context.Context) {
		if err := r.confirm(ctx, next); err != nil {
			r.log.Debug("next key of the executor not confirmed", "executor", r.cfg.Executor, "next", next, "err", err)
			return
		}
		r.checks.tell(func() { r.cfg.ExecutorKeyReplaced(r.cfg.Executor, next) })
	})
}

// isNews reports whether this next key was not looked at yet, and marks it.
func (r *Remote) isNews(next keys.PublicKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.successors[next]; known || len(r.successors) >= maxSuccessors {
		return false
	}
	if r.successors == nil {
		r.successors = make(map[keys.PublicKey]struct{})
	}
	r.successors[next] = struct{}{}
	return true
}

var errNotNamed = errors.New("it does not name the pinned key as the one that it replaces")

// confirm asks the next key itself. The session that this makes is not used for anything.
func (r *Remote) confirm(ctx context.Context, next keys.PublicKey) error {
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	stream, err := r.cfg.OpenCircuitTo(ctx, next)
	if err != nil {
		return err
	}
	_, welcome, err := r.foundOnly(ctx, stream, next, nil)
	if err != nil {
		return err
	}
	if welcome.Previous == nil || *welcome.Previous != r.cfg.Executor.Raw() {
		return errNotNamed
	}
	return nil
}
