package client

import (
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func TestExecutorsKeyIsReplacedOnlyAfterBothStatements(t *testing.T) {
	for _, c := range []struct {
		name  string
		make  func(s *succession, old, next *announcer)
		asked int
		told  bool
	}{
		{"both", func(*succession, *announcer, *announcer) {}, 1, true},
		{"the next names a third as well", func(s *succession, old, next *announcer) {
			more := naming(s.add().key)
			both := next.change
			next.change = func(w *wire.Welcome) { both(w); more(w) }
		}, 1, true},
		{"the old key names nobody", func(_ *succession, old, _ *announcer) { old.change = nil }, 0, false},
		{"the old key names itself", func(_ *succession, old, _ *announcer) { old.change = naming(old.key) }, 0, false},
		{"the old key says that it follows the next", func(_ *succession, old, next *announcer) { old.change = following(next.key) }, 0, false},
		{"the next names nobody", func(_ *succession, _, next *announcer) { next.change = nil }, 1, false},
		{"the next follows another", func(s *succession, _, next *announcer) { next.change = following(s.add().key) }, 1, false},
		{"the next follows itself", func(_ *succession, _, next *announcer) { next.change = following(next.key) }, 1, false},
		{"the next says that the old one comes next", func(_ *succession, old, next *announcer) { next.change = naming(old.key) }, 1, false},
		{"the next speaks another version", func(_ *succession, _, next *announcer) {
			both := next.change
			next.change = func(w *wire.Welcome) { both(w); w.Versions = wire.VersionRange{Min: 2, Max: 2} }
		}, 1, false},
		{"the next refuses", func(_ *succession, _, next *announcer) {
			next.answer = func(p *noiseconn.Pending) { p.Refuse(wire.Errorf(wire.CodeUnauthorized, "not listed")) }
		}, 1, false},
		{"the next says something else", func(_ *succession, _, next *announcer) {
			next.answer = func(p *noiseconn.Pending) { p.Accept(&wire.Ping{}) }
		}, 1, false},
		{"the next is silent", func(_ *succession, _, next *announcer) {
			next.answer = func(*noiseconn.Pending) {} // and ends the stream when the client gives up
		}, 1, false},
		{"the next cuts", func(_ *succession, _, next *announcer) {
			next.change = func(w *wire.Welcome) { w.Session = wire.ID{} } // which cannot be sent
		}, 1, false},
		{"the next is offline", func(s *succession, _, next *announcer) { delete(s.announced, next.key.Public()) }, 1, false},
		{"the relay is gone", func(s *succession, _, _ *announcer) { s.refuse = wire.ErrLost }, 1, false},
		{"somebody else is there in its place", func(s *succession, old, next *announcer) {
			impostor := s.add()
			impostor.change = following(old.key)
			s.announced[next.key.Public()] = impostor
		}, 1, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			inSuccession(t, func(t *testing.T, s *succession, old, next *announcer) {
				c.make(s, old, next)
				s.use()
				s.wantAsked(c.name, next, c.asked)
				var want [][2]keys.PublicKey
				if c.told {
					want = append(want, pair(old.key, next.key))
				}
				s.want(t, c.name, want...)
				s.use() // the Remote goes on as before
				s.remote.Close()
				s.want(t, c.name+", in the end", want...)
				if s.loud != 0 {
					t.Errorf("%d log records above Debug", s.loud)
				}
			})
		})
	}
}

func TestSessionWithTheNextKeyIsClosedCleanlyAndNotUsed(t *testing.T) {
	inSuccession(t, func(t *testing.T, s *succession, old, next *announcer) {
		for range 3 {
			s.use()
			<-time.After(wire.SessionIdle)
		}
		s.want(t, "three sessions", pair(old.key, next.key))
		s.now.Lock()
		defer s.now.Unlock()
		if next.asked != 1 || next.clean != 1 || old.asked != 3 {
			t.Errorf("the next key had %d circuits, of which %d ended cleanly, and the old one %d: want 1, 1, 3", next.asked, next.clean, old.asked)
		}
	})
}

func TestNextKeyIsAskedOnceAlsoWhenItCouldNotBeReached(t *testing.T) {
	inSuccession(t, func(t *testing.T, s *succession, old, next *announcer) {
		s.refuse = wire.ErrLost
		for range 3 {
			s.use()
			s.wantAsked("offline at first", next, 1)
			<-time.After(wire.SessionIdle)
			s.now.Lock()
			s.refuse = nil
			s.now.Unlock()
		}
		s.want(t, "afterwards")
	})
}

func TestExecutorThatNamesEverOtherKeysIsNotFollowedForEver(t *testing.T) {
	inSuccession(t, func(t *testing.T, s *succession, old, _ *announcer) {
		old.change = func(w *wire.Welcome) { naming(newKey(t, keys.Executor))(w) }
		for range maxSuccessors + 5 {
			s.use()
			<-time.After(wire.SessionIdle)
		}
		if n := len(s.opened); n != maxSuccessors {
			t.Errorf("%d keys were asked, want %d", n, maxSuccessors)
		}
	})
}

func TestNextKeyThatARenewalNamesIsAsked(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := &succession{t: t, ctx: w.ctx, begun: w.begun, announced: make(map[keys.PublicKey]*announcer)}
		next := s.add()
		next.change = following(w.it)
		cfg := s.config(next)
		w.remote.cfg.OpenCircuitTo, w.remote.cfg.ExecutorKeyReplaced = cfg.OpenCircuitTo, cfg.ExecutorKeyReplaced
		w.output("echo")
		for w.clock() <= wire.SessionRenew {
			<-time.After(5 * time.Minute)
			w.output("echo")
		}
		s.want(t, "an executor that names nobody")
		w.set(func() { // only what founds a session comes here: the others get no channel
			serve := &announcer{key: w.it, change: naming(next.key)}
			w.serve = func(stream wire.Stream) { s.serve(serve, stream) }
		})
		<-time.After(wire.SessionRenew + time.Minute)
		first := w.remote.session
		w.remote.renewInBackground(first)
		if w.remote.session == first {
			t.Fatal("the session was not renewed")
		}
		s.want(t, "after a renewal", [2]keys.PublicKey{w.it.Public(), next.key.Public()})
		w.remote.Close()
		s.circuits.Wait()
	})
}

func TestNobodyIsAskedWhereNobodyIsTold(t *testing.T) {
	for name, change := range map[string]func(*RemoteConfig){
		"no callback":        func(c *RemoteConfig) { c.ExecutorKeyReplaced = nil },
		"no way to open one": func(c *RemoteConfig) { c.OpenCircuitTo = nil },
		"no log":             func(c *RemoteConfig) { c.Log, c.OpenCircuitTo = nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			inSuccession(t, func(t *testing.T, s *succession, old, next *announcer) {
				s.remote.Close()
				cfg := s.config(old)
				change(&cfg)
				s.remote = NewRemote(cfg)
				s.use()
				s.wantAsked(name, next, 0)
				s.want(t, name)
			})
		})
	}
}

func TestCheckBegunByAStartLeavesItsHandleAlone(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		s := &succession{t: t, ctx: w.ctx, begun: w.begun, announced: make(map[keys.PublicKey]*announcer)}
		next := s.add()
		next.change = following(w.it)
		cfg := s.config(next)
		w.remote.cfg.OpenCircuitTo, w.remote.cfg.ExecutorKeyReplaced = cfg.OpenCircuitTo, cfg.ExecutorKeyReplaced
		raw := wire.Bytes32(next.key.Public().Raw())
		p := w.begin("sleep", "1m", "done")
		w.remote.learn(&wire.Welcome{Next: &raw})
		s.want(t, "while a command runs", [2]keys.PublicKey{w.it.Public(), next.key.Public()})
		for e, err := range p.Events(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if e.Chunk != nil && string(e.Chunk.Data) != "done\n" {
				t.Errorf("output %q", e.Chunk.Data)
			}
		}
		w.remote.Close()
		s.circuits.Wait()
	})
}
