package relay_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

func TestNewestConnectionOfAnInstanceTakesOverAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		h := hello(key)
		old := r.join(t, key, h) // answers no ping: half dead behind a NAT
		start := time.Now()
		fresh := r.join(t, key, h)
		if time.Since(start) != 0 {
			t.Errorf("takeover took %v, want none", time.Since(start))
		}
		if fresh.welcome.Generation <= old.welcome.Generation {
			t.Errorf("generations %d, then %d", old.welcome.Generation, fresh.welcome.Generation)
		}
		wantCode(t, "old connection", ended(t, old), wire.CodeSuperseded)
		circuit(t, client, fresh)
		if n := value(t, r.Relay, "superseded_total", "same_instance"); n != 1 {
			t.Errorf("counted %v takeovers, want 1", n)
		}
		if n := value(t, r.Relay, "executors_registered"); n != 1 {
			t.Errorf("%v executors registered, want 1", n)
		}
	})
}

func TestSecondMachineWithTheSameKeyIsRefusedWhileTheFirstAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		incumbent := r.join(t, key, hello(key))
		incumbent.answer()
		clone := r.dial(t)
		_, _, err := shake(t.Context(), clone, r.Key.Public(), key, hello(key))
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeDuplicate || e.RetryAfter != time.Minute {
			t.Errorf("clone got %v, want duplicate with a retry-after of a minute", err)
		}
		wantCode(t, "clone's connection", ended(t, clone), wire.CodeDuplicate)
		circuit(t, client, incumbent)
		if n := value(t, r.Relay, "duplicate_identity_total"); n != 1 {
			t.Errorf("counted %v duplicates, want 1", n)
		}
	})
}

func TestSilentIncumbentMakesRoomAfterTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		incumbent := r.join(t, key, hello(key)) // answers nothing
		start := time.Now()
		fresh := r.join(t, key, hello(key))
		if took := time.Since(start); took != wire.IncumbentTimeout {
			t.Errorf("newcomer waited %v, want %v", took, wire.IncumbentTimeout)
		}
		wantCode(t, "incumbent's connection", ended(t, incumbent), wire.CodeSuperseded)
		circuit(t, client, fresh)
		synctest.Wait()
		if n := value(t, r.Relay, "superseded_total", "dead_incumbent"); n != 1 {
			t.Errorf("counted %v dead incumbents, want 1", n)
		}
		if n := value(t, r.Relay, "executors_registered"); n != 1 {
			t.Errorf("%v executors registered, want 1", n)
		}
	})
}

func TestTwoNewcomersForASilentKeyLeaveOneRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		key, client := r.NewPeer(keys.Executor), r.newPeer(t, keys.Client)
		r.join(t, key, hello(key)) // answers nothing
		type result struct {
			tr  wire.Transport
			err error
		}
		results := make(chan result)
		for range 2 {
			tr, h := r.dial(t), hello(key)
			go func() {
				_, _, err := shake(t.Context(), tr, r.Key.Public(), key, h)
				results <- result{tr, err}
			}()
		}
		var live []wire.Transport
		for range 2 {
			got := <-results
			synctest.Wait()
			if got.err == nil && got.tr.Context().Err() == nil {
				live = append(live, got.tr)
				continue
			}
			wantCode(t, "loser", ended(t, got.tr), wire.CodeDuplicate)
		}
		if len(live) != 1 {
			t.Fatalf("%d newcomers are connected, want 1", len(live))
		}
		circuit(t, client, &peer{Transport: live[0], t: t, key: key})
	})
}

func TestExecutorThatLeavesIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		executor, client := r.newPeer(t, keys.Executor), r.newPeer(t, keys.Client)
		circuit(t, client, executor)
		if err := executor.Close(wire.CodeShutdown, "bye"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := value(t, r.Relay, "executors_registered"); n != 0 {
			t.Errorf("%v executors registered, want none", n)
		}
		s := client.ask(executor.key.Public())
		wantCode(t, "dial", client.reply(s).Code, wire.CodeUnreachable)
	})
}
