package client

import (
	"context"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// Agent is a process of the same user that stays connected, so that a program which runs for one command finds a connection to the
// relay and a session with the executor. It sees what the client's key lets it see anyway. Its methods are safe for concurrent use. An
// error of either makes a Client connect by itself.
type Agent interface {
	// OpenCircuit makes a stream to an executor, through the agent's connection to the relay.
	OpenCircuit(ctx context.Context, executor keys.PublicKey) (wire.Stream, error)
	// Borrow is a part of the agent's session with an executor, another one than not, which the executor did
	// not know any more.
	Borrow(ctx context.Context, executor keys.PublicKey, not wire.ID) (Loan, error)
}

// Loan is a part of a session with an executor, for another process.
type Loan struct {
	noiseconn.Loan
	Epoch wire.ID `cbor:"7,keyasint"` // the executor's state epoch
}

// Lend gives n channels of the session with the executor to another process. A session that is not there, or that the other process
// has found to be forgotten, is founded first. The context bounds it.
func (r *Remote) Lend(ctx context.Context, not wire.ID, n uint64) (Loan, error) {
	r.mu.Lock()
	stale := r.session != nil && r.session.ID() == not
	r.mu.Unlock()
	for {
		s, found, err := r.sessionOrTurn(ctx, stale)
		if err != nil {
			return Loan{}, err
		}
		if s == nil {
			if s, err = r.foundForOthers(ctx); err != nil {
				found(nil)
				return Loan{}, err
			}
			found(s)
		}
		l, err := s.Lend(n)
		if err == nil || stale {
			return Loan{l, s.epoch}, err
		}
		stale = true // it has no numbers left
	}
}

// foundForOthers makes a session that carries nothing yet.
func (r *Remote) foundForOthers(ctx context.Context) (*session, error) {
	stream, err := r.cfg.OpenCircuit(ctx)
	if err != nil {
		return nil, err
	}
	s, welcome, err := r.foundOnly(ctx, stream, r.cfg.Executor, nil)
	if err != nil {
		return nil, err
	}
	r.learn(welcome)
	return s, nil
}

// borrowed asks the agent for a session; nil where there is none to be had.
func (r *Remote) borrowed(ctx context.Context, not wire.ID) *session {
	if r.cfg.Borrow == nil {
		return nil
	}
	l, err := r.cfg.Borrow(ctx, not)
	if err == nil {
		var ns *noiseconn.Session
		if ns, err = noiseconn.Borrow(l.Loan, r.cfg.Clock); err == nil && ns.Peer() == r.cfg.Executor.Raw() {
			// Its age and its renewal are the agent's care.
			return &session{Session: ns, epoch: l.Epoch, used: ns.Clock(), renewing: true}
		}
	}
	r.log.Debug("no session from the agent", "executor", r.cfg.Executor, "err", err)
	return nil
}
