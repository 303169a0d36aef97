package relay

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// The label values. They are a closed set: no key, name, address or version ever is one.
const (
	roleUnknown = "unknown" // before the peer has said what it is

	resultOK         = "ok"
	resultBadAuth    = "bad_auth"    // no valid handshake: garbage, another relay key, a middle
	resultUnknownKey = "unknown_key" // a proven key that is not admitted
	resultVersion    = "version"
	resultTimeout    = "timeout"
	resultLimited    = "limited"
	resultDuplicate  = "duplicate"
	resultJoin       = "join"  // a join token that is not good
	resultError      = "error" // the connection broke, or the hello made no sense

	toExecutor = "to_executor"
	toClient   = "to_client"

	causeSameInstance  = "same_instance"
	causeDeadIncumbent = "dead_incumbent"
)

var (
	roles   = []string{wire.RoleExecutor: "executor", wire.RoleClient: "client"}
	results = []string{resultOK, resultBadAuth, resultUnknownKey, resultVersion, resultTimeout, resultLimited, resultDuplicate, resultJoin, resultError}
)

// roleName is the label value of a role.
func roleName(r wire.Role) string {
	if int(r) < len(roles) && roles[r] != "" {
		return roles[r]
	}
	return roleUnknown
}

// codeName is the label value of a code; peers may send numbers that are none.
func codeName(c wire.Code) string {
	switch {
	case c == 0:
		return resultOK
	case c.Known():
		return c.String()
	}
	return "other"
}

type metrics struct {
	connections *prometheus.GaugeVec   // by role
	registered  prometheus.Gauge       // executors
	inFlight    prometheus.Gauge       // handshakes
	handshakes  *prometheus.CounterVec // by role and result
	refusals    *prometheus.CounterVec // by code
	superseded  *prometheus.CounterVec // by cause
	duplicates  prometheus.Counter
	joins       *prometheus.CounterVec // by result
	requests    *prometheus.CounterVec // by request and result
	dials       *prometheus.CounterVec // by result
	circuits    prometheus.Gauge
	ends        *prometheus.CounterVec // by code
	bytesUp     prometheus.Counter
	bytesDown   prometheus.Counter
}

// newMetrics registers everything with all its label values, so that rates start at zero.
func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "postern", Subsystem: "relay", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "postern", Subsystem: "relay", Name: name, Help: help}, labels)
	}
	connections := gauge("connections", "Open authenticated hop connections.", "role")
	registered := gauge("executors_registered", "Distinct executor keys registered here.")
	inFlight := gauge("handshakes_in_flight", "Connections that are accepted and not admitted yet.")
	handshakes := counter("handshakes_total", "Finished hop handshakes.", "role", "result")
	refusals := counter("refusals_total", "Refusals sent, to connections and to dials.", "code")
	superseded := counter("superseded_total", "Executor connections that a newer one replaced.", "cause")
	duplicates := counter("duplicate_identity_total", "Registrations refused because another live instance holds the key.")
	dials := counter("dials_total", "Dial requests.", "result")
	joins := counter("joins_total", "Machines that came with a join token.", "result")
	requests := counter("requests_total", "Requests of members to the relay itself.", "request", "result")
	circuits := gauge("circuits", "Open circuits.")
	ends := counter("circuit_ends_total", "Finished circuits.", "reason")
	bytes := counter("relayed_bytes_total", "Bytes copied through circuits.", "direction")

	var failures []error
	for _, c := range []prometheus.Collector{connections, registered, inFlight, handshakes, refusals, superseded, duplicates, joins, requests, dials, circuits, ends, bytes} {
		failures = append(failures, r.Register(c))
	}
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	for _, role := range []string{roleUnknown, roleName(wire.RoleExecutor), roleName(wire.RoleClient)} {
		for _, result := range results {
			handshakes.WithLabelValues(role, result)
		}
		if role != roleUnknown {
			connections.WithLabelValues(role)
		}
	}
	for c := wire.Code(0); c == 0 || c.Known(); c++ {
		ends.WithLabelValues(codeName(c))
		dials.WithLabelValues(codeName(c))
		if c != 0 {
			refusals.WithLabelValues(codeName(c))
		}
	}
	for _, result := range roster.JoinResults {
		joins.WithLabelValues(string(result))
	}
	for _, request := range requestNames {
		requests.WithLabelValues(request, resultOK)
	}
	for _, v := range []*prometheus.CounterVec{ends, dials, refusals} {
		v.WithLabelValues("other")
	}
	superseded.WithLabelValues(causeSameInstance)
	superseded.WithLabelValues(causeDeadIncumbent)
	return &metrics{
		connections: connections, registered: registered.WithLabelValues(), inFlight: inFlight.WithLabelValues(),
		handshakes: handshakes, refusals: refusals, superseded: superseded, duplicates: duplicates.WithLabelValues(), joins: joins, requests: requests,
		dials: dials, circuits: circuits.WithLabelValues(), ends: ends,
		bytesUp: bytes.WithLabelValues(toExecutor), bytesDown: bytes.WithLabelValues(toClient),
	}, nil
}
