package relay_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

// site is a relay with one tenant, for one limit.
type site struct {
	memory
	t                *testing.T
	client, executor *peer
}

// enter comes as key, and is let in or told that it is too much.
func (s *site) enter(key *keys.PrivateKey) (leave func(), err error) {
	tr := s.dial(s.t)
	_, _, err = shake(context.Background(), tr, s.Key.Public(), key, hello(key))
	return func() { _ = tr.Close(wire.CodeShutdown, "bye"); synctest.Wait() }, err
}

func (s *site) newKey(kind keys.Kind) *keys.PrivateKey {
	key := generate(s.t, kind)
	s.AllowIn("acme", key.Public())
	return key
}

// begin begins a circuit.
func (s *site) begin() (end func(), err error) {
	stream := s.client.ask(s.executor.key.Public())
	if err := s.client.reply(stream).Err(); err != nil {
		return nil, err
	}
	e, _ := s.executor.incoming()
	return func() { stream.Reset(wire.CodeCancelled); e.Reset(wire.CodeCancelled); synctest.Wait() }, nil
}

// Each limit that the metric names is reached by what it is about, refuses once, counts once and nothing else, and is free again
// when what has taken it is over.
func TestEveryLimitIsReachedCountedAndReleased(t *testing.T) {
	cases := []struct {
		name   string // of the label
		limits relay.Limits
		tenant keys.TenantLimits
		free   int // how many fit beside the client and the executor that are there
		take   func(s *site) (release func(), err error)
	}{
		{"key_connections", relay.Limits{ClientConnections: 2}, keys.TenantLimits{}, 1, func(s *site) (func(), error) { return s.enter(s.client.key) }},
		{"tenant_connections", relay.Limits{}, keys.TenantLimits{Connections: 4}, 2, func(s *site) (func(), error) { return s.enter(s.newKey(keys.Client)) }},
		{"tenant_executors", relay.Limits{}, keys.TenantLimits{Executors: 3}, 2, func(s *site) (func(), error) { return s.enter(s.newKey(keys.Executor)) }},
		{"key_circuits", relay.Limits{ClientCircuits: 2}, keys.TenantLimits{}, 2, (*site).begin},
		{"tenant_circuits", relay.Limits{}, keys.TenantLimits{Circuits: 2}, 2, (*site).begin},
		{"executor_circuits", relay.Limits{ExecutorCircuits: 2}, keys.TenantLimits{}, 2, (*site).begin},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := inMemory(t, c.limits)
				r.Limit("acme", c.tenant)
				s := &site{memory: r, t: t, client: r.newPeerIn(t, "acme", keys.Client), executor: r.newPeerIn(t, "acme", keys.Executor)}
				for round := range 3 {
					var releases []func()
					for range c.free {
						release, err := c.take(s)
						if err != nil {
							t.Fatalf("round %d: %v, want room for %d", round, err, c.free)
						}
						releases = append(releases, release)
					}
					_, err := c.take(s)
					wantBusy(t, "one more", err)
					if n := value(t, r.Relay, "limited_total", c.name); n != float64(round+1) {
						t.Errorf("counted %v times, want %d", n, round+1)
					}
					for _, release := range releases {
						release()
					}
				}
				wantNoOtherLimit(t, r, c.name)
			})
		})
	}
}

func wantNoOtherLimit(t *testing.T, r memory, name string) {
	t.Helper()
	for _, other := range []string{
		"handshakes", "tenant_handshakes", "key_connections", "tenant_connections", "tenant_executors",
		"key_circuits", "tenant_circuits", "executor_circuits", "tenant_bytes", "key_bytes", "key_handshakes",
	} {
		if n := value(t, r.Relay, "limited_total", other); other != name && n != 0 {
			t.Errorf("%s counted %v times, want only %s", other, n, name)
		}
	}
}

func TestExecutorsConnectionsAreBoundedPerKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{ExecutorConnections: 2})
		key := r.NewPeer(keys.Executor)
		first := r.join(t, key, hello(key))
		first.answer() // so that the second machine has to wait for nothing
		h := hello(key)
		held := r.dial(t)
		_, _, err := shake(t.Context(), held, r.Key.Public(), key, h)
		wantCode(t, "another machine with the key", wire.CodeOf(err), wire.CodeDuplicate)
		// Its refused connection has its place until it is closed.
		_, _, err = shake(t.Context(), r.dial(t), r.Key.Public(), key, hello(key))
		wantBusy(t, "a third connection", err)
		wantNoOtherLimit(t, r, "key_connections")
		_ = held.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		_, _, err = shake(t.Context(), r.dial(t), r.Key.Public(), key, hello(key))
		wantCode(t, "after it has left", wire.CodeOf(err), wire.CodeDuplicate)
	})
}

func TestHandshakesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{Handshakes: 2})
		key := r.NewPeer(keys.Client)
		silent := []wire.Transport{r.dial(t), r.dial(t)}
		synctest.Wait()
		if n := value(t, r.Relay, "handshakes_in_flight"); n != 2 {
			t.Errorf("%v in flight, want 2", n)
		}
		wantCode(t, "one more", ended(t, r.dial(t)), wire.CodeBusy)
		if n := value(t, r.Relay, "limited_total", "handshakes"); n != 1 {
			t.Errorf("counted %v times, want 1", n)
		}
		_ = silent[0].Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		r.join(t, key, hello(key))
		start := time.Now()
		wantCode(t, "the silent one", ended(t, silent[1]), wire.CodeTimeout)
		if took := time.Since(start); took != wire.HopTimeout {
			t.Errorf("it had %v, want %v", took, wire.HopTimeout)
		}
		synctest.Wait()
		if n := value(t, r.Relay, "handshakes_in_flight"); n != 0 {
			t.Errorf("%v in flight, want none", n)
		}
		wantNoOtherLimit(t, r, "handshakes")
	})
}
