package main

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// hostileRelay has a relay's key, a real client on one side and a real executor with a state folder on
// the other. It keeps what the client sends on every circuit, and does with it what a test says.
type hostileRelay struct {
	t      *testing.T
	key    *keys.PrivateKey
	me, it *keys.PrivateKey
	client *client.Client
	remote *client.Remote
	begun  time.Time

	ctx     context.Context // of the relay
	running sync.WaitGroup

	ledger ledger
	runner *executortest.Runner
	local  *executor.Local
	state  string   // its folder
	site   struct { // of the executor that is there now; ctx ends with it
		sync.RWMutex
		executor *executor.Executor
		ctx      context.Context
		cancel   context.CancelFunc
		circuits *sync.WaitGroup
	}

	mu       sync.Mutex
	hop      wire.Transport // the relay's end of the client's connection
	treat    func(n int) treatment
	circuits []*recording
}

// hostilePatience is the client's.
const hostilePatience = 2 * time.Minute

func withHostileRelay(t *testing.T, test func(t *testing.T, r *hostileRelay)) {
	synctest.Test(t, func(t *testing.T) {
		r := &hostileRelay{
			t: t, key: newKey(t, keys.Relay), me: newKey(t, keys.Client), it: newKey(t, keys.Executor),
			begun: time.Now(), runner: new(executortest.Runner),
		}
		r.ledger.handle(r.runner)
		var over context.CancelFunc
		r.ctx, over = context.WithCancel(context.Background())
		r.openExecutor(t.TempDir())
		r.newClient()
		defer func() {
			r.client.Close()
			over()
			r.closeExecutor()
			r.running.Wait()
		}()
		test(t, r)
	})
}

func (r *hostileRelay) newClient() {
	r.t.Helper()
	var err error
	r.client, err = client.New(client.Config{
		Key: r.me, Relay: keys.RelayURL{Host: "192.0.2.1", Port: 1, Key: r.key.Public()},
		Connect: r.connect, Clock: r.clock, Patience: hostilePatience,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.remote = r.client.Executor(r.it.Public())
}

// restartClient takes a new one that knows no session.
func (r *hostileRelay) restartClient() {
	r.t.Helper()
	r.client.Close()
	r.newClient()
}

func (r *hostileRelay) restartExecutor(state string) {
	r.t.Helper()
	r.closeExecutor()
	r.openExecutor(state)
}

func (r *hostileRelay) clock() time.Duration { return time.Since(r.begun) }

// openExecutor makes an executor of a state folder; closeExecutor ends it in good order.
func (r *hostileRelay) openExecutor(state string) {
	r.t.Helper()
	local, err := executor.NewLocal(executor.LocalConfig{Runner: r.runner, State: state, Keep: time.Hour})
	if err != nil {
		r.t.Fatal(err)
	}
	e, err := executor.New(executor.Config{Key: r.it, Clients: admitting(r.t, r.me.Public()), Backend: local, Clock: r.clock})
	if err != nil {
		r.t.Fatal(err)
	}
	r.site.Lock()
	defer r.site.Unlock()
	r.local, r.state, r.site.executor, r.site.circuits = local, state, e, new(sync.WaitGroup)
	r.site.ctx, r.site.cancel = context.WithCancel(context.Background())
}

func (r *hostileRelay) closeExecutor() {
	r.t.Helper()
	r.site.Lock()
	circuits := r.site.circuits
	r.site.executor = nil
	r.site.cancel()
	r.site.Unlock()
	circuits.Wait()
	if err := r.local.Close(); err != nil {
		r.t.Error(err)
	}
}

// toExecutor is a new circuit to the executor, nil while there is none.
func (r *hostileRelay) toExecutor() wire.Stream {
	r.site.RLock()
	defer r.site.RUnlock()
	e, ctx := r.site.executor, r.site.ctx
	if e == nil {
		return nil
	}
	ours, theirs := wiretest.Pipe()
	r.site.circuits.Go(func() { e.ServeCircuit(ctx, theirs, r.me.Public().Raw()) })
	return ours
}

// mine is the client's own view of the executor's machine.
func (r *hostileRelay) mine() *executor.Local {
	return r.local.As(executor.Caller{Principal: r.me.Public().String()})
}

// treats says what happens to each circuit from now on; nil: it is passed on as it should be.
func (r *hostileRelay) treats(how func(n int) treatment) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.treat = how
}

// recorded are all circuits so far.
func (r *hostileRelay) recorded() []*recording {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.circuits[:len(r.circuits):len(r.circuits)]
}

// dropClient ends the client's connection: while nobody uses it, no heartbeat counts the hours.
func (r *hostileRelay) dropClient() {
	r.mu.Lock()
	hop := r.hop
	r.mu.Unlock()
	if hop != nil {
		hop.Close(wire.CodeShutdown, "")
	}
}

func (r *hostileRelay) connect(context.Context) (wire.Transport, error) {
	mine, theirs := wiretest.Transports([]byte("binding"))
	r.mu.Lock()
	r.hop = theirs
	r.mu.Unlock()
	r.running.Go(func() { r.serve(theirs) })
	return mine, nil
}

// serve is what an honest relay does too.
func (r *hostileRelay) serve(t wire.Transport) {
	defer t.Close(wire.CodeShutdown, "")
	s, err := t.AcceptStream(r.ctx)
	if err != nil {
		return
	}
	p, err := noiseconn.Accept(r.ctx, s, noiseconn.ResponderConfig{Static: r.key, Prologue: noiseconn.HopPrologue(t.Binding())})
	if err != nil {
		return
	}
	c, err := p.Accept(&wire.HopWelcome{Versions: wire.Versions, Connection: 1})
	if err != nil {
		return
	}
	r.running.Go(func() {
		for {
			m, err := c.Recv()
			if err != nil {
				return
			}
			if ping, ok := m.(*wire.HopPing); ok {
				c.Send(&wire.HopPong{Number: ping.Number})
			}
		}
	})
	for {
		s, err := t.AcceptStream(r.ctx)
		if err != nil {
			return
		}
		r.running.Go(func() {
			if m, err := wire.ReadFrame(s); err != nil {
				s.Reset(wire.CodeProtocol)
			} else if _, ok := m.(*wire.Dial); ok {
				r.circuit(s)
			}
		})
	}
}

// circuit records what the client sends, and treats it.
func (r *hostileRelay) circuit(s wire.Stream) {
	r.mu.Lock()
	rec := &recording{n: len(r.circuits), changed: make(chan struct{})}
	r.circuits = append(r.circuits, rec)
	var how treatment
	if r.treat != nil {
		how = r.treat(rec.n)
	}
	r.mu.Unlock()
	r.running.Go(func() { rec.record(s) })
	r.running.Go(func() { r.treatCircuit(rec, s, how) })
}
