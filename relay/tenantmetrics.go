package relay

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// tenantMetrics are series with a tenant's name, which nobody gets without asking: their number is up to whoever
// lists tenants. The first of them get a series of their own, the rest share one.
type tenantMetrics struct {
	bytes *prometheus.CounterVec // by tenant and direction
	dials *prometheus.CounterVec // by tenant and outcome

	mu    sync.Mutex
	named map[string]bool
}

const (
	// maxTenantSeries is how many tenants have series of their own.
	maxTenantSeries = 200
	otherTenants    = "_other" // no tenant's name begins with an underscore

	dialOK      = "ok"
	dialFailed  = "failed"
	dialLimited = "limited"
)

func newTenantMetrics() *tenantMetrics {
	return &tenantMetrics{
		bytes: counterVec("tenant_relayed_bytes_total", "Bytes copied through circuits of a tenant.", "tenant", "direction"),
		dials: counterVec("tenant_dials_total", "Dial requests of a tenant.", "tenant", "outcome"),
		named: make(map[string]bool),
	}
}

// label is the label value of a tenant.
func (t *tenantMetrics) label(tenant string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.named[tenant] {
		if len(t.named) >= maxTenantSeries {
			return otherTenants
		}
		t.named[tenant] = true
	}
	return tenant
}

// dial counts a dial.
func (t *tenantMetrics) dial(tenant, outcome string) {
	if t != nil {
		t.dials.WithLabelValues(t.label(tenant), outcome).Inc()
	}
}

// carry is the pair of counters for a circuit, nil where nobody wants them.
func (t *tenantMetrics) carry(tenant string) (up, down prometheus.Counter) {
	if t == nil {
		return nil, nil
	}
	label := t.label(tenant)
	return t.bytes.WithLabelValues(label, toExecutor), t.bytes.WithLabelValues(label, toClient)
}

// forget removes the series of tenants that are gone.
func (t *tenantMetrics) forget(there func(tenant string) bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for tenant := range t.named {
		if !there(tenant) {
			delete(t.named, tenant)
			t.bytes.DeletePartialMatch(prometheus.Labels{"tenant": tenant})
			t.dials.DeletePartialMatch(prometheus.Labels{"tenant": tenant})
		}
	}
}

// Describe implements prometheus.Collector.
func (t *tenantMetrics) Describe(d chan<- *prometheus.Desc) {
	t.bytes.Describe(d)
	t.dials.Describe(d)
}

// Collect implements prometheus.Collector.
func (t *tenantMetrics) Collect(c chan<- prometheus.Metric) {
	t.bytes.Collect(c)
	t.dials.Collect(c)
}
