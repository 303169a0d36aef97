package relay_test

import (
	"errors"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

func TestNameStaysWithItsFirstKey(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	alice := r.newPeerIn(t, "acme", keys.Client)
	tok := alice.newToken("*", 5)
	first, second := generate(t, keys.Executor), generate(t, keys.Executor)
	holder := r.join(t, first, tok.hello(first, "builder"))
	want := func(what string) {
		t.Helper()
		_, _, err := shake(t.Context(), r.dial(t), r.Key.Public(), second, tok.hello(second, "builder"))
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeNameTaken {
			t.Errorf("%s: second key asks for the name: %v, want name taken", what, err)
		}
		if m, in := r.Roster().Current().Lookup(first.Public()); !in || m.Name != "builder" {
			t.Errorf("%s: the first key is %+v", what, m)
		}
	}
	want("while it is online")
	circuit(t, alice, holder)
	_ = holder.Close(wire.CodeShutdown, "bye")
	want("while it is offline")
	// The same name in another tenant is another name.
	bob := r.newPeerIn(t, "other", keys.Client)
	if p := r.join(t, second, bob.newToken("*", 1).hello(second, "builder")); p.welcome.Name != "builder" || p.welcome.Tenant != "other" {
		t.Errorf("welcome %+v", p.welcome)
	}
}

func TestConnectionEndsWhenItsTenantOrNameChangesAndNobodyElses(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	client, executor := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "acme", keys.Executor)
	c, e := circuit(t, client, executor)
	for _, kind := range []keys.Kind{keys.Client, keys.Executor} {
		for what, change := range map[string]func(key keys.PublicKey){
			"tenant": func(key keys.PublicKey) { r.AllowAs("other", key, "subject") },
			"name":   func(key keys.PublicKey) { r.AllowAs("acme", key, "renamed") },
		} {
			key := generate(t, kind)
			r.AllowAs("acme", key.Public(), "subject")
			p := r.join(t, key, hello(key))
			r.AllowAs("acme", key.Public(), "subject") // nothing has changed
			if p.Context().Err() != nil {
				t.Errorf("%s: closed although nothing has changed", kind)
			}
			change(key.Public())
			wantCode(t, string(kind)+" with another "+what, ended(t, p), wire.CodeUnauthorized)
			back := r.join(t, key, hello(key)) // it comes back at once, as what it is now
			if m, _ := r.Roster().Current().Lookup(key.Public()); back.welcome.Name != m.Name || back.welcome.Tenant != m.Tenant {
				t.Errorf("welcome %+v, want %s in %s", back.welcome, m.Name, m.Tenant)
			}
			r.Remove(key.Public())
		}
	}
	say(t, c, "undisturbed")
	hear(t, e, "undisturbed")
}

func TestExecutorThatMovesIsReachedFromItsNewTenantOnly(t *testing.T) {
	r := inMemory(t, relay.Limits{})
	alice, bob := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "other", keys.Client)
	executor := r.newPeerIn(t, "acme", keys.Executor)
	circuit(t, alice, executor)
	r.AllowIn("other", executor.key.Public())
	wantCode(t, "executor", ended(t, executor), wire.CodeUnauthorized)
	back := r.join(t, executor.key, hello(executor.key))
	circuit(t, bob, back)
	wantCode(t, "from the old tenant", alice.reply(alice.ask(executor.key.Public())).Code, wire.CodeUnreachable)
}
