package client

import (
	"context"
	"crypto/rand"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// announcer stands in for an executor with one key, and says in its welcome what a test wants. Every
// question about execs it answers with an empty list.
type announcer struct {
	key    *keys.PrivateKey
	change func(*wire.Welcome)      // nil: it names nobody
	answer func(*noiseconn.Pending) // instead of a welcome
	before func(context.Context)    // it answers a handshake
	asked  int
	clean  int // handshakes that carried nothing and ended with FIN
}

// naming makes a welcome name next keys.
func naming(next *keys.PrivateKey) func(*wire.Welcome) {
	raw := wire.Bytes32(next.Public().Raw())
	return func(w *wire.Welcome) { w.Next = &raw }
}

// following makes it name earlier ones.
func following(previous *keys.PrivateKey) func(*wire.Welcome) {
	raw := wire.Bytes32(previous.Public().Raw())
	return func(w *wire.Welcome) { w.Previous = &raw }
}

// succession is executors that may be reached by their keys, and a Remote of one of them.
type succession struct {
	t        *testing.T
	ctx      context.Context
	begun    time.Time
	circuits sync.WaitGroup
	heard
	loud   int // log records above Debug
	remote *Remote

	now       sync.Mutex
	announced map[keys.PublicKey]*announcer
	opened    []keys.PublicKey // by OpenCircuitTo
	refuse    error            // instead of a circuit to another key
}

func inSuccession(t *testing.T, test func(t *testing.T, s *succession, old, next *announcer)) {
	synctest.Test(t, func(t *testing.T) {
		s := &succession{t: t, begun: time.Now(), announced: make(map[keys.PublicKey]*announcer)}
		var cancel context.CancelFunc
		s.ctx, cancel = context.WithCancel(context.Background())
		old, next := s.add(), s.add()
		old.change, next.change = naming(next.key), following(old.key)
		s.remote = NewRemote(s.config(old))
		defer func() {
			s.remote.Close()
			cancel()
			s.circuits.Wait()
		}()
		test(t, s, old, next)
	})
}

func (s *succession) config(of *announcer) RemoteConfig {
	return RemoteConfig{
		Key: newKey(s.t, keys.Client), Executor: of.key.Public(), Clock: func() time.Duration { return time.Since(s.begun) },
		OpenCircuit: func(context.Context) (wire.Stream, error) { return s.open(of.key.Public()) },
		OpenCircuitTo: func(_ context.Context, to keys.PublicKey) (wire.Stream, error) {
			s.now.Lock()
			s.opened = append(s.opened, to)
			refuse := s.refuse
			s.now.Unlock()
			if refuse != nil {
				return nil, refuse
			}
			return s.open(to)
		},
		ExecutorKeyReplaced: s.told, Log: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug + 1})),
	}
}

// Write counts what is logged above Debug.
func (s *succession) Write(p []byte) (int, error) {
	s.now.Lock()
	defer s.now.Unlock()
	s.loud++
	return len(p), nil
}

// add makes one more executor.
func (s *succession) add() *announcer {
	s.now.Lock()
	defer s.now.Unlock()
	a := &announcer{key: newKey(s.t, keys.Executor)}
	s.announced[a.key.Public()] = a
	return a
}

// at is the executor that has a key, nil where none has.
func (s *succession) at(key keys.PublicKey) *announcer {
	s.now.Lock()
	defer s.now.Unlock()
	return s.announced[key]
}

func (s *succession) open(to keys.PublicKey) (wire.Stream, error) {
	s.now.Lock()
	defer s.now.Unlock()
	a := s.announced[to]
	if a == nil {
		return nil, &relayRefusal{wire.Errorf(wire.CodeUnreachable, "offline")}
	}
	a.asked++
	ours, theirs := wiretest.Pipe()
	s.circuits.Go(func() { s.serve(a, theirs) })
	return ours, nil
}

func (s *succession) serve(a *announcer, stream wire.Stream) {
	defer stream.Reset(wire.CodeShutdown)
	stop := context.AfterFunc(s.ctx, func() { stream.Reset(wire.CodeShutdown) })
	defer stop()
	s.now.Lock()
	change, answer, before := a.change, a.answer, a.before
	s.now.Unlock()
	if before != nil {
		before(s.ctx)
	}
	cfg := noiseconn.ResponderConfig{Static: a.key, Prologue: noiseconn.EndToEndPrologue(), Clock: func() time.Duration { return time.Since(s.begun) }}
	in, err := noiseconn.AcceptAny(s.ctx, stream, cfg, func(wire.ID) *noiseconn.Session { return nil })
	if err != nil { // a channel of a session, which it keeps none of: let the refusal be read
		stream.CloseWrite()
		io.Copy(io.Discard, stream)
		return
	}
	if answer != nil {
		answer(in.Pending)
		io.Copy(io.Discard, stream)
		return
	}
	w := &wire.Welcome{
		Versions: wire.Versions, Session: wire.ID(wire.NewExecID()),
		Limits: wire.SessionLimits{Message: wire.MaxMessage, Window: wire.OutputWindow, Sandbox: 1},
	}
	rand.Read(w.Random[:])
	if change != nil {
		change(w)
	}
	c, err := in.Pending.Accept(w)
	if err != nil {
		return
	}
	for n := 0; ; n++ {
		m, err := c.Recv()
		if err == io.EOF && n == 0 {
			s.now.Lock()
			a.clean++
			s.now.Unlock()
		}
		if err != nil {
			return
		}
		if _, ok := m.(*wire.Control); ok {
			c.Send(&wire.List{})
		}
	}
}

// use asks for a list, on a session of its own where the last one is older than ten minutes.
func (s *succession) use() {
	s.t.Helper()
	if _, err := s.remote.List(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// wantAsked checks how often a key was asked by OpenCircuitTo.
func (s *succession) wantAsked(what string, of *announcer, times int) {
	s.t.Helper()
	synctest.Wait()
	s.now.Lock()
	defer s.now.Unlock()
	n := 0
	for _, k := range s.opened {
		if k == of.key.Public() {
			n++
		}
	}
	if n != times || len(s.opened) != times {
		s.t.Errorf("%s: the key was asked %d times of %d, want %d", what, n, len(s.opened), times)
	}
}
