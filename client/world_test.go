package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// world is a Remote and an executor whose commands live in memory, on simulated time, with
// nothing but streams between them. A test can put itself in between.
type world struct {
	t      *testing.T
	me, it *keys.PrivateKey
	begun  time.Time
	runner *executortest.Runner
	local  *executor.Local
	remote *Remote

	circuits sync.WaitGroup
	ctx      context.Context

	mu sync.Mutex
	// serve answers a circuit; the real executor unless a test puts something else here.
	serve func(wire.Stream)
	// between stands on the client's side of each circuit.
	between func(wire.Stream) wire.Stream
	refuse  error // instead of a circuit
	kinds   []byte
}

// The first byte of a circuit tells what the client wants.
const (
	handshake = 1
	known     = 2
)

func inWorld(t *testing.T, test func(t *testing.T, w *world)) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, me: newKey(t, keys.Client), it: newKey(t, keys.Executor), begun: time.Now(), runner: new(executortest.Runner)}
		var err error
		if w.local, err = executor.NewLocal(executor.LocalConfig{Runner: w.runner}); err != nil {
			t.Fatal(err)
		}
		w.restart()
		var cancel context.CancelFunc
		w.ctx, cancel = context.WithCancel(context.Background())
		w.remote = NewRemote(RemoteConfig{Key: w.me, Executor: w.it.Public(), Clock: w.clock, OpenCircuit: w.open})
		defer func() {
			w.remote.Close()
			cancel()
			w.circuits.Wait()
			w.local.Close()
		}()
		test(t, w)
	})
}

// impatient makes handles end with the first circuit that is lost.
func (w *world) impatient() { w.remote.patience = -1 }

func newKey(t testing.TB, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (w *world) clock() time.Duration { return time.Since(w.begun) }

// restart makes an executor that has forgotten its sessions and keeps its commands.
func (w *world) restart() {
	w.t.Helper()
	e := newExecutor(w.t, w.it, w.me.Public(), w.local, w.clock)
	w.set(func() {
		w.serve = func(s wire.Stream) { e.ServeCircuit(w.ctx, s, w.me.Public().Raw()) }
	})
}

// newExecutor admits one client.
func newExecutor(t *testing.T, it *keys.PrivateKey, client keys.PublicKey, b *executor.Local, clock noiseconn.Clock) *executor.Executor {
	t.Helper()
	list, err := keys.ParseAuthorizedClients("clients", strings.NewReader(client.String()))
	if err != nil {
		t.Fatal(err)
	}
	e, err := executor.New(executor.Config{
		Key: it, Clients: func() *keys.AuthorizedClients { return list }, Backend: b, Clock: clock,
	})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

func (w *world) open(context.Context) (wire.Stream, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return nil, w.refuse
	}
	ours, theirs := wiretest.Pipe()
	serve := w.serve
	w.circuits.Go(func() { serve(theirs) })
	var s wire.Stream = &tapped{Stream: ours, w: w}
	if w.between != nil {
		s = w.between(s)
	}
	return s, nil
}

// tapped notes the first byte that is written.
type tapped struct {
	wire.Stream
	w    *world
	once sync.Once
}

func (s *tapped) Write(p []byte) (int, error) {
	s.once.Do(func() { s.w.set(func() { s.w.kinds = append(s.w.kinds, p[0]) }) })
	return s.Stream.Write(p)
}

// wantKinds checks which circuits were opened since the last call, in any order: a renewal goes
// on beside the exec that began it.
func (w *world) wantKinds(what string, want ...byte) {
	w.t.Helper()
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	slices.Sort(w.kinds)
	slices.Sort(want)
	if !slices.Equal(w.kinds, want) {
		w.t.Errorf("%s: circuits of kinds %v, want %v", what, w.kinds, want)
	}
	w.kinds = nil
}

func (w *world) begin(argv ...string) wire.ExecProcess {
	w.t.Helper()
	p, err := w.remote.Start(w.t.Context(), wire.ExecParams{Argv: argv})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// output runs a command to its end.
func (w *world) output(argv ...string) string {
	w.t.Helper()
	out, err := Environment{Backend: w.remote}.Command(argv...).Output(w.t.Context())
	if err != nil {
		w.t.Fatalf("%v: %v", argv, err)
	}
	return string(out)
}

func wantCode(t *testing.T, what string, err error, code wire.Code) {
	t.Helper()
	if err == nil || wire.CodeOf(err) != code {
		t.Errorf("%s: %v, want code %v", what, err, code)
	}
}

func wantLost(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, wire.ErrLost) {
		t.Errorf("%s: %v, want ErrLost", what, err)
	}
}
