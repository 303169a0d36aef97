package client

import (
	"context"
	"errors"
	"strings"
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
	Software    string
	Clock       noiseconn.Clock // nil: the boot clock
}

// Remote is the ExecBackend of one executor. It makes one session with it when it is
// first used, and a circuit for each exec. It is safe for concurrent use.
type Remote struct {
	cfg      RemoteConfig
	instance wire.ID
	attempts atomic.Uint64

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	background sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	session  *session
	founding chan struct{} // closed when the handshake that is under way has ended
	handles  map[*RemoteProcess]struct{}
}

var _ wire.ExecBackend = (*Remote)(nil)

// NewRemote connects to nothing yet. Client.Executor is the usual way to get one.
func NewRemote(cfg RemoteConfig) *Remote {
	r := &Remote{cfg: cfg, instance: wire.ID(wire.NewExecID()), handles: make(map[*RemoteProcess]struct{})}
	r.ctx, r.cancel = context.WithCancel(context.Background())
	return r
}

// Start implements wire.ExecBackend. An error that is wire.ErrLost means that the command may
// be running; any other, that it is not.
func (r *Remote) Start(ctx context.Context, p wire.ExecParams) (wire.ExecProcess, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	attempt := r.attempts.Add(1)
	return r.begin(ctx, 0, true, func(clock time.Duration, epoch wire.ID) wire.Message {
		m := wire.NewStart(p)
		m.Deadline, m.Instance, m.Attempt, m.Epoch = deadline(clock), r.instance, attempt, epoch
		return m
	})
}

// Attach implements wire.ExecBackend.
func (r *Remote) Attach(ctx context.Context, id wire.ExecID, o wire.AttachOptions) (wire.ExecProcess, error) {
	if id.IsZero() {
		return nil, wire.Errorf(wire.CodeNotFound, "no exec %s", id)
	}
	attempt := r.attempts.Add(1)
	return r.begin(ctx, o.After, o.Control, func(clock time.Duration, _ wire.ID) wire.Message {
		return &wire.Attach{Deadline: deadline(clock), ID: id, Instance: r.instance, Attempt: attempt, After: o.After, Control: o.Control, Owner: o.Owner}
	})
}

// Close ends every handle; commands go on until their detach grace runs out.
func (r *Remote) Close() error {
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
	return nil
}

func deadline(clock time.Duration) uint64 {
	return uint64((clock + wire.OpeningDeadline) / time.Millisecond)
}

// begin opens a channel about one exec and makes a handle of it.
func (r *Remote) begin(ctx context.Context, after uint64, control bool, make func(time.Duration, wire.ID) wire.Message) (wire.ExecProcess, error) {
	ch, answer, err := r.open(ctx, make)
	if err != nil {
		return nil, plain(err)
	}
	started, ok := answer.(*wire.Started)
	if !ok {
		ch.conn.Reset(wire.CodeProtocol)
		return nil, wire.Errorf(wire.CodeProtocol, "the executor answered with a %T", answer)
	}
	p := newRemoteProcess(r, ch, started, after, control)
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		ch.conn.Reset(wire.CodeCancelled)
		return nil, wire.ErrClosed
	}
	r.handles[p] = struct{}{}
	r.mu.Unlock()
	p.run()
	return p, nil
}

// plain drops the mark that only open needs. A connection that was lost before anything was
// sent leaves no doubt about the outcome: it must not look like wire.ErrLost.
func plain(err error) error {
	e, ok := errors.AsType[*errUnsent](err)
	switch {
	case !ok:
		return err
	case errors.Is(e.error, wire.ErrLost):
		return wire.Errorf(wire.CodeUnreachable, "%s", strings.ReplaceAll(e.Error(), wire.ErrLost.Error(), "connection lost"))
	}
	return e.error
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
