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

func TestKeyIsHeldToItsRateAndItsNeighbourIsNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perSecond = 1 << 20
		r := inMemory(t, relay.Limits{ClientBytes: perSecond})
		executor, one, two := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client), r.newPeer(t, keys.Client)
		c, e := circuit(t, one, executor)
		c2, e2 := circuit(t, two, executor)
		first, second := flow(c, e), flow(c2, e2)
		time.Sleep(5 * time.Second) // the burst is over
		before, before2 := first(), second()
		time.Sleep(time.Minute)
		wantRate(t, "one key", first()-before, time.Minute, perSecond)
		wantRate(t, "another key of the tenant", second()-before2, time.Minute, perSecond)
		if value(t, r.Relay, "limited_total", "key_bytes") == 0 {
			t.Error("not counted as limited")
		}
		for _, s := range []wire.Stream{c, e, c2, e2} {
			s.Reset(wire.CodeCancelled)
		}
		synctest.Wait()
	})
}

func TestKeysHandshakesAreHeldToTheirRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{KeyHandshakes: 5})
		one, two := r.NewPeer(keys.Client), r.NewPeer(keys.Client)
		come := func(key *keys.PrivateKey) error {
			tr := r.dial(t)
			_, _, err := shake(context.Background(), tr, r.Key.Public(), key, hello(key))
			_ = tr.Close(wire.CodeShutdown, "bye")
			return err
		}
		for n := range 10 {
			if err := come(one); err != nil {
				t.Fatalf("handshake %d: %v, want ten at once", n, err)
			}
		}
		wantBusy(t, "the eleventh", come(one))
		if err := come(two); err != nil {
			t.Errorf("another key of the tenant: %v", err)
		}
		if n := value(t, r.Relay, "limited_total", "key_handshakes"); n != 1 {
			t.Errorf("counted %v, want 1", n)
		}
		time.Sleep(time.Second)
		for n := range 5 {
			if err := come(one); err != nil {
				t.Errorf("a second later, handshake %d: %v", n, err)
			}
		}
	})
}
