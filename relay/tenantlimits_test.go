package relay_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/wire"
)

// wantBusy wants a refusal that says when to come again.
func wantBusy(t *testing.T, what string, err error) {
	t.Helper()
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeBusy || e.RetryAfter <= 0 {
		t.Errorf("%s: %v, want busy with a retry-after", what, err)
	}
}

// tryJoin comes as a new member of a tenant.
func (m memory) tryJoin(t *testing.T, tenant string, kind keys.Kind) (wire.Transport, error) {
	t.Helper()
	key, tr := generate(t, kind), m.dial(t)
	m.AllowIn(tenant, key.Public())
	_, _, err := shake(t.Context(), tr, m.Key.Public(), key, hello(key))
	return tr, err
}

func TestTenantsConnectionsAreBoundedForItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		r.Limit("acme", keys.TenantLimits{Connections: 2})
		client, executor := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "acme", keys.Executor)
		_, err := r.tryJoin(t, "acme", keys.Client)
		wantBusy(t, "a third connection", err)
		if n := value(t, r.Relay, "handshakes_total", "limited", "client"); n != 1 {
			t.Errorf("counted %v as limited, want 1", n)
		}
		r.newPeerIn(t, "other", keys.Client)
		circuit(t, client, executor)
		_ = client.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		if _, err := r.tryJoin(t, "acme", keys.Client); err != nil {
			t.Errorf("after one has left: %v", err)
		}
		_, err = r.tryJoin(t, "acme", keys.Executor)
		wantBusy(t, "a third connection again", err)
		r.Limit("acme", keys.TenantLimits{})
		if _, err := r.tryJoin(t, "acme", keys.Executor); err != nil {
			t.Errorf("after the limit was lifted: %v", err)
		}
	})
}

func TestTenantsExecutorsAreBoundedForItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		r.Limit("acme", keys.TenantLimits{Executors: 1})
		client := r.newPeerIn(t, "acme", keys.Client)
		key := generate(t, keys.Executor)
		r.AllowIn("acme", key.Public())
		h := hello(key)
		r.join(t, key, h)
		executor := r.join(t, key, h) // its own next connection is no second executor
		tr, err := r.tryJoin(t, "acme", keys.Executor)
		wantBusy(t, "a second executor", err)
		wantCode(t, "its connection", ended(t, tr), wire.CodeBusy)
		if limited, duplicate := value(t, r.Relay, "handshakes_total", "limited", "executor"), value(t, r.Relay, "handshakes_total", "duplicate", "executor"); limited != 1 || duplicate != 0 {
			t.Errorf("counted %v as limited and %v as duplicate, want 1 and none", limited, duplicate)
		}
		if n := value(t, r.Relay, "duplicate_identity_total"); n != 0 {
			t.Errorf("%v duplicates, want none", n)
		}
		r.newPeerIn(t, "other", keys.Executor)
		circuit(t, client, executor)
		_ = executor.Close(wire.CodeShutdown, "bye")
		synctest.Wait()
		if _, err := r.tryJoin(t, "acme", keys.Executor); err != nil {
			t.Errorf("after one has left: %v", err)
		}
		_, err = r.tryJoin(t, "acme", keys.Executor)
		wantBusy(t, "a second executor again", err)
		r.Limit("acme", keys.TenantLimits{Executors: 2})
		if _, err := r.tryJoin(t, "acme", keys.Executor); err != nil {
			t.Errorf("after the limit was raised: %v", err)
		}
	})
}

func TestTenantsCircuitsAreBoundedForItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := inMemory(t, relay.Limits{})
		r.Limit("acme", keys.TenantLimits{Circuits: 2})
		a, b := r.newPeerIn(t, "acme", keys.Client), r.newPeerIn(t, "acme", keys.Client)
		executor := r.newPeerIn(t, "acme", keys.Executor)
		first, _ := circuit(t, a, executor)
		circuit(t, b, executor)
		for _, client := range []*peer{a, b} {
			wantBusy(t, "a third circuit", client.reply(client.ask(executor.key.Public())).Err())
			client.carriedOut(&wire.ListExecutors{}) // a request is no circuit of the tenant
		}
		otherClient, otherExecutor := r.newPeerIn(t, "other", keys.Client), r.newPeerIn(t, "other", keys.Executor)
		for range 3 {
			circuit(t, otherClient, otherExecutor)
		}
		// Who asks for nobody gets the usual answer, and takes no place.
		wantCode(t, "nobody", a.reply(a.ask(otherExecutor.key.Public())).Code, wire.CodeUnreachable)
		first.Reset(wire.CodeCancelled)
		synctest.Wait()
		circuit(t, b, executor)
		wantBusy(t, "a third circuit again", a.reply(a.ask(executor.key.Public())).Err())
		r.Limit("acme", keys.TenantLimits{})
		circuit(t, a, executor)
	})
}
