package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// RemoteConfig says which executor a Remote reaches, and how.
type RemoteConfig struct {
	Key      *keys.PrivateKey
	Executor keys.PublicKey // the executor must prove it
	// OpenCircuit makes a stream to the executor, whatever carries it.
	OpenCircuit func(context.Context) (wire.Stream, error)
	// OpenCircuitTo is OpenCircuit to an executor with another key, by which a next key is asked itself. It
	// must end with its context. Nil: no next key is looked at, and nobody is told of one.
	OpenCircuitTo func(context.Context, keys.PublicKey) (wire.Stream, error)
	// Borrow is a session of another process, not the one with the given number. An error, or nil: the Remote founds
	// its own.
	Borrow   func(ctx context.Context, not wire.ID) (Loan, error)
	Software string
	Log      *slog.Logger    // nil: nothing
	Clock    noiseconn.Clock // nil: the boot clock
	// Patience is how long a handle tries to come back after it lost its link, and Start to
	// get an answer after it sent its request, both counted from the loss on a clock that
	// stands still while the machine sleeps. Zero: DefaultPatience. Negative: they do not try.
	Patience time.Duration
	// Interrupted is told when an exec's link is lost and when it is back, once each for every
	// handle, and for a Start that waits for its answer. Calls come one after the other. It must
	// return soon, since nothing comes back meanwhile, and must not close the handle or
	// the Remote. Nil: nobody is told.
	Interrupted func(Interruption)
	// Observer is told what happens, for metrics; see Config. Nil: nobody is told.
	Observer Observer
	// ExecutorKeyReplaced is told that the executor replaces its key: the old one has named the next, and the
	// next the old, each in a handshake that it has proven. It is the moment to pin next instead; this Remote
	// goes on with the key that it has. Told at most once for each next key, and never when the next one
	// cannot be asked. It may use the Remote, whose Close waits at most 5 seconds for it. Nil: nobody is
	// told, and no next key is asked.
	ExecutorKeyReplaced func(old, next keys.PublicKey)
}

// DefaultPatience outlasts the restart of a relay or an executor, and a dead spot on a train.
const DefaultPatience = 15 * time.Minute

// Interruption is one change of an exec's link: lost, or back. There is none for a handle that
// has ended, whether by its patience or for another reason; its methods tell.
type Interruption struct {
	Executor keys.PublicKey
	Exec     wire.ExecID
	Err      error         // why the link was lost; nil when it is back
	Lasted   time.Duration // how long it was away, when it is back
}

// Remote is the ExecBackend of one executor. It makes one session with it when it is
// first used, and a circuit for each exec. It is safe for concurrent use.
type Remote struct {
	cfg      RemoteConfig
	patience time.Duration // negative: none
	observer Observer
	instance wire.ID
	telling  sync.Mutex // one call of Interrupted at a time
	attempts atomic.Uint64
	epochs   epochs

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup
	checks     *lingering // of next keys

	log *slog.Logger

	mu         sync.Mutex
	closed     bool
	session    *session
	founding   chan struct{} // closed when the handshake that is under way has ended
	handles    map[*RemoteProcess]struct{}
	successors map[keys.PublicKey]struct{} // next keys that the executor has named
}

var _ wire.ExecBackend = (*Remote)(nil)

// NewRemote connects to nothing yet. Client.Executor is the usual way to get one.
func NewRemote(cfg RemoteConfig) *Remote {
	r := &Remote{
		cfg: cfg, patience: cfg.Patience, instance: wire.ID(wire.NewExecID()), handles: make(map[*RemoteProcess]struct{}),
		checks: newLingering(), log: cfg.Log, observer: orUnobserved(cfg.Observer),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.patience == 0 {
		r.patience = DefaultPatience
	}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Attach implements wire.ExecBackend.
func (r *Remote) Attach(ctx context.Context, id wire.ExecID, o wire.AttachOptions) (wire.ExecProcess, error) {
	if id.IsZero() {
		return nil, wire.Errorf(wire.CodeNotFound, "no exec %s", id)
	}
	return once(ctx, r, func() (wire.ExecProcess, error) {
		ch, answer, err := r.open(ctx, func(clock time.Duration, _ wire.ID) wire.Message {
			return &wire.Attach{Deadline: deadline(clock), ID: id, Instance: r.instance, Attempt: r.attempts.Add(1), After: o.After, Control: o.Control, Owner: o.Owner}
		})
		if err != nil {
			return nil, err
		}
		return r.begin(ch, answer, o, false)
	})
}

// Close ends every handle; commands go on until their detach grace runs out. A next key of the executor's
// that is being asked at this moment, and ExecutorKeyReplaced after it, may delay it by 5 seconds at most.
func (r *Remote) Close() error {
	r.close(time.Now().Add(lingerAtMost))
	return nil
}

// close lets checks go on until a time.
func (r *Remote) close(until time.Time) {
	r.mu.Lock()
	r.closed = true
	handles := r.handles
	r.handles = nil
	r.mu.Unlock()
	r.cancel()
	for p := range handles {
		p.Close()
	}
	r.background.Wait()
	r.checks.finish(until)
}

// interrupted tells whoever wants to know.
func (r *Remote) interrupted(id wire.ExecID, err error, lasted time.Duration) {
	if r.cfg.Interrupted == nil {
		return
	}
	if err != nil {
		if err = reasonOf(err); err == nil {
			err = errCut
		}
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	r.cfg.Interrupted(Interruption{Executor: r.cfg.Executor, Exec: id, Err: err, Lasted: lasted})
}

var errCut = errors.New("connection lost")

func deadline(clock time.Duration) uint64 {
	return uint64((clock + wire.OpeningDeadline) / time.Millisecond)
}

// begin makes a handle of a channel about one exec.
func (r *Remote) begin(ch *channel, answer wire.Message, o wire.AttachOptions, started bool) (wire.ExecProcess, error) {
	p, c, err := newRemoteProcess(r, ch, answer, o)
	if err != nil {
		ch.conn.Reset(wire.CodeProtocol)
		return nil, plain(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		p.cancel()
		ch.conn.Reset(wire.CodeCancelled)
		return nil, wire.ErrClosed
	}
	p.started = started
	r.handles[p] = struct{}{}
	p.workers.Go(func() { p.run(c) })
	return p, nil
}

func (r *Remote) forget(p *RemoteProcess) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.handles, p)
}

// sessionOrTurn returns the session, or, where there is none, the caller's turn to
// found it: it must call found once, with nil if it failed. Others wait meanwhile.
func (r *Remote) sessionOrTurn(ctx context.Context, fresh bool) (*session, func(*session), error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, nil, wire.ErrClosed
		}
		if s := r.session; s != nil && !fresh && s.usable() {
			s.used = s.Clock()
			if s.used > wire.SessionRenew && !s.renewing {
				s.renewing = true
				r.background.Go(func() { r.renewInBackground(s) })
			}
			r.mu.Unlock()
			return s, nil, nil
		}
		if r.founding == nil {
			r.founding = make(chan struct{})
			r.mu.Unlock()
			return nil, r.founded, nil
		}
		founding := r.founding
		r.mu.Unlock()
		select {
		case <-founding:
			fresh = false // somebody else's is fresh enough
		case <-ctx.Done():
			return nil, nil, context.Cause(ctx)
		}
	}
}

// forgotten is the session that the executor does not know any more, where that is why a fresh one is wanted.
func (r *Remote) forgotten(fresh bool) wire.ID {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !fresh || r.session == nil {
		return wire.ID{}
	}
	return r.session.ID()
}

// renewInBackground replaces a session of some age while it still works. Should it fail, the
// next user of the old one tries again.
func (r *Remote) renewInBackground(old *session) {
	s, err := r.renew(r.ctx, old)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil && r.session == old {
		r.session = s
	}
	old.renewing = false
}

func (r *Remote) founded(s *session) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s != nil {
		r.session = s
	}
	close(r.founding)
	r.founding = nil
}
