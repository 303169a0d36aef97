package relay

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// metrics are what a relay counts. All label values are there from the beginning, so that rates start at zero.
type metrics struct {
	connections *prometheus.GaugeVec     // by role
	registered  prometheus.Gauge         // executors
	inFlight    prometheus.Gauge         // handshakes
	handshakes  *prometheus.CounterVec   // by role and result
	handshake   *prometheus.HistogramVec // seconds, by role
	disconnects *prometheus.CounterVec   // by role and reason
	refusals    *prometheus.CounterVec   // by code
	limited     *prometheus.CounterVec   // by limit
	superseded  *prometheus.CounterVec   // by cause
	duplicates  prometheus.Counter
	joins       *prometheus.CounterVec // by result
	requests    *prometheus.CounterVec // by request and result
	dials       *prometheus.CounterVec // by result
	dial        prometheus.Histogram   // seconds
	circuits    prometheus.Gauge
	ends        *prometheus.CounterVec // by code
	circuit     prometheus.Histogram   // seconds
	bytes       *prometheus.CounterVec // by direction
	buffered    prometheus.GaugeFunc
	ready       prometheus.Gauge
	draining    prometheus.Gauge
	goaways     *prometheus.CounterVec // by role
	links       *linkMetrics
	tenants     *tenantMetrics // nil: not wanted
}

// options of the families. Classic and native buckets are shown together: which of them a Prometheus takes is its
// configuration's to say.
func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "postern", Subsystem: "relay", Name: name, Help: help}, labels)
}

func gaugeOpts(name, help string) prometheus.GaugeOpts {
	return prometheus.GaugeOpts{Namespace: "postern", Subsystem: "relay", Name: name, Help: help}
}

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{
		Namespace: "postern", Subsystem: "relay", Name: name, Help: help, Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}
}

func newMetrics(r prometheus.Registerer, buffered func() float64, tenantSeries bool) (*metrics, error) {
	m := &metrics{
		connections: prometheus.NewGaugeVec(gaugeOpts("connections", "Open authenticated hop connections."), []string{"role"}),
		registered:  prometheus.NewGauge(gaugeOpts("executors_registered", "Distinct executor keys registered here.")),
		inFlight:    prometheus.NewGauge(gaugeOpts("handshakes_in_flight", "Connections that are accepted and not admitted yet.")),
		handshakes:  counterVec("handshakes_total", "Finished hop handshakes.", "role", "result"),
		handshake: prometheus.NewHistogramVec(histogramOpts(
			"handshake_duration_seconds", "Time from an accepted connection to its welcome.", prometheus.ExponentialBuckets(0.001, 2, 14)), []string{"role"}),
		disconnects: counterVec("disconnects_total", "Ends of authenticated connections.", "role", "reason"),
		refusals:    counterVec("refusals_total", "Refusals sent, to connections and to dials.", "code"),
		limited:     counterVec("limited_total", "Work that was refused or held back by a limit.", "limit"),
		superseded:  counterVec("superseded_total", "Executor connections that a newer one replaced.", "cause"),
		duplicates:  prometheus.NewCounter(prometheus.CounterOpts(gaugeOpts("duplicate_identity_total", "Registrations refused because another live instance holds the key."))),
		joins:       counterVec("joins_total", "Machines that came with a join token.", "result"),
		requests:    counterVec("requests_total", "Requests of members to the relay itself.", "request", "result"),
		dials:       counterVec("dials_total", "Dial requests.", "result"),
		dial: prometheus.NewHistogram(histogramOpts(
			"dial_duration_seconds", "Time from a read dial to its circuit.", prometheus.ExponentialBuckets(0.0001, 2, 14))),
		circuits: prometheus.NewGauge(gaugeOpts("circuits", "Open circuits.")),
		ends:     counterVec("circuit_ends_total", "Finished circuits.", "reason"),
		circuit: prometheus.NewHistogram(histogramOpts(
			"circuit_duration_seconds", "Life of finished circuits.", []float64{0.01, 0.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 24 * 3600})),
		bytes:    counterVec("relayed_bytes_total", "Bytes copied through circuits.", "direction"),
		buffered: prometheus.NewGaugeFunc(gaugeOpts("buffer_bytes", "Bytes held for slow receivers."), buffered),
		ready:    prometheus.NewGauge(gaugeOpts("ready", "1 while the relay takes new work.")),
		draining: prometheus.NewGauge(gaugeOpts("draining", "1 from the beginning of a drain to the end.")),
		goaways:  counterVec("goaways_total", "Peers that were told that the relay goes away.", "role"),
		links:    newLinkMetrics(),
	}
	var failures []error
	for _, c := range []prometheus.Collector{
		m.connections, m.registered, m.inFlight, m.handshakes, m.handshake, m.disconnects, m.refusals, m.limited, m.superseded, m.duplicates,
		m.joins, m.requests, m.dials, m.dial, m.circuits, m.ends, m.circuit, m.bytes, m.buffered, m.ready, m.draining, m.goaways,
	} {
		failures = append(failures, r.Register(c))
	}
	for _, c := range m.links.collectors() {
		failures = append(failures, r.Register(c))
	}
	if tenantSeries {
		m.tenants = newTenantMetrics()
		failures = append(failures, r.Register(m.tenants))
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	m.touch()
	return m, nil
}

// touch makes all series.
func (m *metrics) touch() {
	for _, role := range []string{roleUnknown, roleName(wire.RoleExecutor), roleName(wire.RoleClient)} {
		for _, result := range results {
			m.handshakes.WithLabelValues(role, result)
		}
		if role != roleUnknown {
			m.connections.WithLabelValues(role)
			m.handshake.WithLabelValues(role)
			m.goaways.WithLabelValues(role)
			for _, reason := range disconnectReasons {
				m.disconnects.WithLabelValues(role, reason)
			}
		}
	}
	for c := wire.Code(0); c == 0 || c.Known(); c++ {
		m.ends.WithLabelValues(codeName(c))
		m.dials.WithLabelValues(codeName(c))
		if c != 0 {
			m.refusals.WithLabelValues(codeName(c))
		}
	}
	for _, v := range []*prometheus.CounterVec{m.ends, m.dials, m.refusals} {
		v.WithLabelValues("other")
	}
	for _, result := range roster.JoinResults {
		m.joins.WithLabelValues(string(result))
	}
	for _, request := range requestNames {
		m.requests.WithLabelValues(request, resultOK)
	}
	for v, values := range map[*prometheus.CounterVec][]string{
		m.superseded: {causeSameInstance, causeDeadIncumbent}, m.bytes: {toExecutor, toClient}, m.limited: limitNames,
	} {
		for _, value := range values {
			v.WithLabelValues(value)
		}
	}
}
