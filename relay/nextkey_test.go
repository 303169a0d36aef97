package relay_test

import (
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

func TestRelayWithTwoKeysAdmitsBothAndTellsTheNextToThoseOfTheFirst(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	next := generate(t, keys.Relay)
	client, executor := r.NewPeer(keys.Client), r.NewPeer(keys.Executor)
	come := func(pin keys.PublicKey, key *keys.PrivateKey) *peer {
		t.Helper()
		tr := r.dial(t)
		control, welcome, err := shake(t.Context(), tr, pin, key, hello(key))
		if err != nil {
			t.Fatal(err)
		}
		return &peer{Transport: tr, t: t, key: key, control: control, welcome: welcome}
	}
	refused := func(pin keys.PublicKey) {
		t.Helper()
		tr := r.dial(t)
		if _, _, err := shake(t.Context(), tr, pin, client, hello(client)); err == nil {
			t.Error("a key that the relay does not have is proven")
		}
		wantCode(t, "wrong key", ended(t, tr), wire.CodeProtocol)
	}
	first := r.Key.Public()
	if w := come(first, client).welcome; w.NextRelay != nil {
		t.Error("told a next key that there is not")
	}
	refused(next.Public())

	r.Announce(next)
	for _, key := range []*keys.PrivateKey{client, executor} {
		if w := come(first, key).welcome; w.NextRelay == nil || *w.NextRelay != next.Public().Raw() {
			t.Errorf("%s on the first key is told %v, want the next one", key.Kind(), w.NextRelay)
		}
		if w := come(next.Public(), key).welcome; w.NextRelay != nil {
			t.Errorf("%s on the next key is told %v, want nothing", key.Kind(), *w.NextRelay)
		}
	}
	refused(generate(t, keys.Relay).Public())
	// The two keys are one relay: who came by either reaches who came by the other.
	a, b := come(first, client), come(next.Public(), executor)
	circuit(t, a, b)

	r.Key = next // the swap
	r.Announce(nil)
	if w := come(next.Public(), client).welcome; w.NextRelay != nil {
		t.Error("told a next key after the swap")
	}
	refused(first)
}

func TestExecutorReplacesItsKeyThroughTheRelay(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	alice := r.newPeerIn(t, "acme", keys.Client)
	tok := alice.newToken("*", 1)
	oldKey, firstNext, next := generate(t, keys.Executor), generate(t, keys.Executor), generate(t, keys.Executor)
	old := r.join(t, oldKey, tok.hello(oldKey, "builder"))
	old.carriedOut(&wire.Follow{Executor: firstNext.Public().Raw()})
	dropped := r.join(t, firstNext, hello(firstNext))
	old.carriedOut(&wire.Follow{Executor: next.Public().Raw()})
	wantCode(t, "the key that was to follow before", ended(t, dropped), wire.CodeUnauthorized)

	fresh := r.join(t, next, hello(next))
	if fresh.welcome.Name != "builder" || fresh.welcome.Tenant != "acme" {
		t.Errorf("welcome %+v", fresh.welcome)
	}
	circuit(t, alice, old) // both serve
	circuit(t, alice, fresh)
	follows := 0
	items := alice.carriedOut(&wire.ListExecutors{})
	for _, m := range items {
		if item := m.(*wire.ExecutorItem); item.Follows != nil && item.Executor == next.Public().Raw() && *item.Follows == oldKey.Public().Raw() {
			follows++
		}
	}
	if len(items) != 2 || follows != 1 {
		t.Errorf("alice is told %v, want two keys of which one follows the other", items)
	}
	if _, end := old.request(&wire.Retire{Executor: next.Public().Raw()}); end.Code != wire.CodeNotFound {
		t.Errorf("the old key retires the next: %v, want not found", end.Err())
	}
	if _, end := fresh.request(&wire.Follow{Executor: generate(t, keys.Executor).Public().Raw()}); end.Code != wire.CodeConflict {
		t.Errorf("a chain: %v, want a conflict", end.Err())
	}
	fresh.carriedOut(&wire.Retire{Executor: oldKey.Public().Raw()})
	wantCode(t, "the old key", ended(t, old), wire.CodeUnauthorized)
	wantCode(t, "dial to it", alice.reply(alice.ask(oldKey.Public())).Code, wire.CodeUnreachable)
	circuit(t, alice, fresh)
}

func TestPeerOfAKeyBeforeTheCurrentOneComesBackToBeToldTheNext(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	second, third := generate(t, keys.Relay), generate(t, keys.Relay)
	key, other := r.NewPeer(keys.Client), r.NewPeer(keys.Executor)
	old := r.join(t, key, hello(key))
	r.Announce(second)
	wantNextKey(t, old, second)
	r.Key = second // the swap, over which connections stay
	r.Announce(nil)
	current := r.join(t, other, hello(other))

	r.Announce(third)
	wantNextKey(t, current, third)
	old.goaway()
	wantCode(t, "the peer of the first key", ended(t, old), wire.CodeShutdown)
	if w := r.join(t, key, hello(key)).welcome; w.NextRelay == nil || *w.NextRelay != third.Public().Raw() {
		t.Errorf("when it comes back by the second key it is told %v, want the third", w.NextRelay)
	}
}

func TestPeerWhoseHandshakeBeganBeforeTheNextKeyIsToldAsWell(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	next, key := generate(t, keys.Relay), r.NewPeer(keys.Client)
	tr := r.dial(t)
	s, err := tr.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i, err := noiseconn.Dial(t.Context(), s, noiseconn.InitiatorConfig{
		Static: key, Peer: r.Key.Public().Raw(), Prologue: noiseconn.HopPrologue(tr.Binding()),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Announce(next)
	control, err := i.Finish(hello(key))
	if err != nil {
		t.Fatal(err)
	}
	m, err := control.Recv()
	if welcome, ok := m.(*wire.HopWelcome); !ok || welcome.NextRelay != nil {
		t.Fatalf("first %+v, %v, want a welcome that knows no next key", m, err)
	}
	wantNextKey(t, &peer{Transport: tr, t: t, key: key, control: control}, next)
}

func wantNextKey(t *testing.T, p *peer, next *keys.PrivateKey) {
	t.Helper()
	m, err := p.control.Recv()
	if told, ok := m.(*wire.HopNextKey); !ok || told.Key != next.Public().Raw() {
		t.Fatalf("%+v, %v, want the next key", m, err)
	}
}

func TestExecutorReplacesItsKeyWhereItsTenantHasNoSecondPlace(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	r.Limit("acme", keys.TenantLimits{Executors: 1})
	alice := r.newPeerIn(t, "acme", keys.Client)
	tok := alice.newToken("*", 2)
	oldKey, next, another := generate(t, keys.Executor), generate(t, keys.Executor), generate(t, keys.Executor)
	old := r.join(t, oldKey, tok.hello(oldKey, "builder"))
	old.carriedOut(&wire.Follow{Executor: next.Public().Raw()})
	fresh := r.join(t, next, hello(next))
	circuit(t, alice, fresh)
	_ = old.Close(wire.CodeShutdown, "a lost link")
	old = r.join(t, oldKey, hello(oldKey))
	circuit(t, alice, old)
	tr := r.dial(t)
	if _, _, err := shake(t.Context(), tr, r.Key.Public(), another, tok.hello(another, "other")); wire.CodeOf(err) != wire.CodeBusy {
		t.Errorf("a second machine: %v, want busy", err)
	}
}
