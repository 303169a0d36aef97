// Package clientprom counts for Prometheus what a client does. It is a package of its own so that programs which
// import package client alone do not pull Prometheus in.
//
//	metrics := clientprom.New()
//	registry.MustRegister(metrics)
//	c, err := client.Dial(ctx, client.Config{Key: key, Relay: relay, Observer: metrics})
//
// One [Metrics] may observe several clients. The label sets are closed: no key, name or command is ever one.
package clientprom

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// Metrics is a [client.Observer] and a [prometheus.Collector], of metrics named postern_client_.... Make it with New. It is
// safe for concurrent use and has nothing to close.
type Metrics struct {
	connects, dials, retries, resumes, commands *prometheus.CounterVec
	dial                                        prometheus.Histogram
}

var (
	_ client.Observer      = (*Metrics)(nil)
	_ prometheus.Collector = (*Metrics)(nil)
)

// The label values.
const (
	ok          = "ok"
	auth        = "auth"
	busy        = "busy"
	other       = "other"
	refused     = "refused"
	timeout     = "timeout"
	unreachable = "unreachable"
	version     = "version"
	exited      = "exited"
	failed      = "failed"
	lost        = "lost"
	signalled   = "signalled"
	ended       = "ended" // by the executor: a limit, a terminate, a removed key
	shutdown    = "shutdown"
	silent      = "silent"
	gone        = "gone"
)

var values = map[string][]string{
	"connects": {ok, auth, busy, refused, timeout, unreachable, version},
	"dials":    {ok, auth, busy, refused, timeout, unreachable, version},
	"retries":  {lost, shutdown, silent, other},
	"resumes":  {ok, gone},
	"commands": {exited, failed, signalled, timeout, ended, refused, lost},
}

// New makes metrics with all their label values, so that rates start at zero. Registering them is the caller's.
func New() *Metrics {
	counter := func(name, help, label string, values []string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "postern", Subsystem: "client", Name: name, Help: help}, []string{label})
		for _, value := range values {
			v.WithLabelValues(value)
		}
		return v
	}
	return &Metrics{
		connects: counter("connects_total", "Attempts to connect to a relay.", "result", values["connects"]),
		dials:    counter("dials_total", "Handshakes with executors through a relay.", "result", values["dials"]),
		retries:  counter("retries_total", "Links of execs that were lost and tried again.", "reason", values["retries"]),
		resumes:  counter("resumes_total", "How trying again ended.", "result", values["resumes"]),
		commands: counter("commands_total", "Commands that were started here.", "result", values["commands"]),
		dial: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "postern", Subsystem: "client", Name: "dial_duration_seconds",
			Help:    "Time from a dial to the executor's welcome.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 14),

			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		}),
	}
}

func (m *Metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.connects, m.dials, m.retries, m.resumes, m.commands, m.dial}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(d chan<- *prometheus.Desc) {
	for _, c := range m.all() {
		c.Describe(d)
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(c chan<- prometheus.Metric) {
	for _, each := range m.all() {
		each.Collect(c)
	}
}

// Connected implements client.Observer.
func (m *Metrics) Connected(err error) { m.connects.WithLabelValues(reach(err)).Inc() }

// Founded implements client.Observer.
func (m *Metrics) Founded(took time.Duration, err error) {
	m.dials.WithLabelValues(reach(err)).Inc()
	if err == nil {
		m.dial.Observe(took.Seconds())
	}
}

// Lost implements client.Observer.
func (m *Metrics) Lost(reason error) {
	value := lost
	if !errors.Is(reason, wire.ErrLost) {
		switch wire.CodeOf(reason) {
		case wire.CodeShutdown:
			value = shutdown
		case wire.CodeTimeout:
			value = silent
		default:
			value = other
		}
	}
	m.retries.WithLabelValues(value).Inc()
}

// Resumed implements client.Observer.
func (m *Metrics) Resumed(err error) {
	if err != nil {
		m.resumes.WithLabelValues(gone).Inc()
		return
	}
	m.resumes.WithLabelValues(ok).Inc()
}

// Ended implements client.Observer.
func (m *Metrics) Ended(status *wire.ExitStatus, err error) {
	m.commands.WithLabelValues(end(status, err)).Inc()
}

func end(status *wire.ExitStatus, err error) string {
	if status == nil {
		if errors.Is(err, wire.ErrLost) {
			return lost
		}
		switch wire.CodeOf(err) {
		case wire.CodeUnknown, wire.CodeSuperseded, wire.CodeRevoked:
			return lost
		}
		return refused
	}
	switch status.Cause {
	case wire.CauseExited:
		if status.Code == 0 {
			return exited
		}
		return failed
	case wire.CauseSignalled, wire.CauseOOM:
		return signalled
	case wire.CauseTimedOut:
		return timeout
	case wire.CauseExecutorLost:
		return lost
	}
	return ended
}

// reach says in a word why somebody was not reached.
func reach(err error) string {
	if err == nil {
		return ok
	}
	e, isCode := errors.AsType[*wire.Error](err)
	if !isCode {
		return unreachable
	}
	switch e.Code {
	case wire.CodeUnauthorized, wire.CodeProtocol:
		return auth
	case wire.CodeVersion:
		return version
	case wire.CodeBusy, wire.CodeLimit:
		return busy
	case wire.CodeTimeout:
		return timeout
	case wire.CodeUnreachable:
		return unreachable
	}
	return refused
}
