package relay

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// An executor that was moved comes back at once, and may be there before its old connection was closed.
func TestExecutorThatTakesOverFromAnotherTenantCountsInItsNewOne(t *testing.T) {
	m, err := newMetrics(prometheus.NewPedanticRegistry(), func() float64 { return 0 }, false)
	if err != nil {
		t.Fatal(err)
	}
	r := newRegistry(m)
	in := func(tenant string, first byte) *conn {
		key, err := keys.NewPublicKey(keys.Executor, [32]byte{first})
		if err != nil {
			t.Fatal(err)
		}
		return &conn{tenant: tenant, key: key}
	}
	install := func(c *conn, most int) (*registration, *wire.Error) {
		mine, foreign := r.claim(c, wire.ID{1})
		_, _, refusal := r.install(mine, foreign, most)
		return mine, refusal
	}
	old, _ := install(in("acme", 1), 1)
	if _, refusal := install(in("other", 2), 1); refusal != nil {
		t.Fatal(refusal)
	}
	if _, refusal := install(in("other", 1), 1); refusal == nil || refusal.Code != wire.CodeBusy {
		t.Errorf("moved to a full tenant: %v, want busy", refusal)
	}
	moved, refusal := install(in("other", 1), 2)
	if refusal != nil {
		t.Fatal(refusal)
	}
	if r.perTenant["acme"] != 0 || r.perTenant["other"] != 2 {
		t.Errorf("counted %v, want two in the new tenant", r.perTenant)
	}
	r.remove(old)
	r.remove(moved)
	if len(r.perTenant) != 1 || r.perTenant["other"] != 1 {
		t.Errorf("counted %v afterwards, want the one that is left", r.perTenant)
	}
}
