package executor

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// The label values. They are a closed set: no key, principal, word of a command or address is ever one.
const (
	resultOK         = "ok"
	resultAuth       = "auth" // the relay does not admit this key, or is another one
	resultVersion    = "version"
	resultLimited    = "limited"
	resultDuplicate  = "duplicate"
	resultTimeout    = "timeout"
	resultRefused    = "refused" // for another reason
	resultUnreached  = "unreachable"
	reasonLost       = "lost" // the relay was restarted or silent, or the network is gone
	reasonShutdown   = "shutdown"
	reasonSuperseded = "superseded"
	reasonRevoked    = "revoked"
	reasonLocal      = "local" // this executor ended it
	reasonOther      = "other"
)

var (
	connectResults    = []string{resultOK, resultAuth, resultVersion, resultLimited, resultDuplicate, resultTimeout, resultRefused, resultUnreached}
	disconnectReasons = []string{reasonLost, reasonShutdown, reasonSuperseded, reasonRevoked, reasonLocal, reasonOther}
	execResults       = []string{"exit_zero", "exit_nonzero", "signal", "timeout", "oom", "limit", "terminated", "revoked", "lost", "start_error", "refused"}
	refusalReasons    = []string{"key", "policy", "sandbox", "quota", "conflict", "state", "other"}
	sandboxStages     = []string{"setup", "unsupported", "lost", "other"}
)

// Metrics are what an executor counts, named postern_executor_.... Make them with NewMetrics; several Executors with one
// Local share one. A nil *Metrics counts nothing. They are safe for concurrent use.
type Metrics struct {
	connected   prometheus.Gauge
	connects    *prometheus.CounterVec // by result
	disconnects *prometheus.CounterVec // by reason
	reconnect   prometheus.Histogram
	clock       prometheus.Gauge
	processes   prometheus.Gauge
	execs       *prometheus.CounterVec // by result
	starts      prometheus.Histogram
	sandbox     *prometheus.CounterVec // by stage
	refusals    *prometheus.CounterVec // by reason
	output      *prometheus.CounterVec // by stream
	truncated   prometheus.Counter
	sessions    prometheus.Gauge
}

// NewMetrics registers everything with all its label values, so that rates start at zero.
func NewMetrics(r prometheus.Registerer) (*Metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "postern", Subsystem: "executor", Name: name, Help: help}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts(opts(name, help)))
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "postern", Subsystem: "executor", Name: name, Help: help, Buckets: buckets,
			NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
		})
	}
	m := &Metrics{
		connected:   gauge("connected", "Registrations with a relay that stand; two while a key is being replaced."),
		connects:    counter("connects_total", "Attempts to register with the relay.", "result"),
		disconnects: counter("disconnects_total", "Registrations that ended.", "reason"),
		reconnect:   histogram("reconnect_duration_seconds", "Time from the loss of a registration to the next one.", prometheus.ExponentialBuckets(0.05, 2, 14)),
		clock:       gauge("clock_offset_seconds", "Own clock minus the relay's, at the last registration."),
		processes:   gauge("processes", "Commands that run."),
		execs:       counter("processes_total", "Commands that ended, were refused or could not be started.", "result"),
		starts:      histogram("start_duration_seconds", "Time from a request to its running process, the record and the sandbox included.", prometheus.ExponentialBuckets(0.0005, 2, 14)),
		sandbox:     counter("sandbox_failures_total", "Sandboxes that could not be built.", "stage"),
		refusals:    counter("policy_refusals_total", "Requests that were refused.", "reason"),
		output:      counter("output_bytes_total", "Output of commands.", "stream"),
		truncated:   prometheus.NewCounter(prometheus.CounterOpts(opts("output_truncated_total", "Commands that ended with less output kept than they had printed."))),
		sessions:    gauge("sessions", "Open conversations with clients."),
	}
	var failures []error
	for _, c := range []prometheus.Collector{
		m.connected, m.connects, m.disconnects, m.reconnect, m.clock, m.processes, m.execs, m.starts, m.sandbox, m.refusals, m.output, m.truncated, m.sessions,
	} {
		failures = append(failures, r.Register(c))
	}
	for vec, values := range map[*prometheus.CounterVec][]string{
		m.connects: connectResults, m.disconnects: disconnectReasons, m.execs: execResults, m.sandbox: sandboxStages, m.refusals: refusalReasons,
		m.output: {"stdout", "stderr", "terminal"},
	} {
		for _, value := range values {
			vec.WithLabelValues(value)
		}
	}
	return m, errors.Join(failures...)
}

// connecting counts an attempt to register; lost is when the last registration ended, zero for none.
func (m *Metrics) connecting(err error, lost time.Time) {
	if m == nil {
		return
	}
	m.connects.WithLabelValues(connectResult(err)).Inc()
	if err == nil {
		m.connected.Inc()
		if !lost.IsZero() {
			m.reconnect.Observe(time.Since(lost).Seconds())
		}
	}
}

// disconnected counts the end of a registration.
func (m *Metrics) disconnected(err error, byUs bool) {
	if m == nil {
		return
	}
	m.connected.Dec()
	reason := disconnectReason(err)
	if byUs {
		reason = reasonLocal
	}
	m.disconnects.WithLabelValues(reason).Inc()
}

// relayTime compares clocks.
func (m *Metrics) relayTime(unixMillis int64) {
	if m != nil {
		m.clock.Set(time.Since(time.UnixMilli(unixMillis)).Seconds())
	}
}

// started counts a command that runs, after so long.
func (m *Metrics) started(took time.Duration) {
	if m != nil {
		m.processes.Inc()
		m.starts.Observe(took.Seconds())
	}
}

// refused counts a request that was not carried out.
func (m *Metrics) refused(err error) {
	if m == nil {
		return
	}
	result := "refused"
	if setup, ok := errors.AsType[*sandboxFailure](err); ok {
		m.sandbox.WithLabelValues(setup.stage).Inc()
		result = "start_error"
	}
	switch wire.CodeOf(err) {
	case wire.CodeNotFoundCmd, wire.CodeNotExec, wire.CodeBadRequest, wire.CodeInternal:
		result = "start_error"
	}
	m.execs.WithLabelValues(result).Inc()
	if result == "refused" {
		m.refusals.WithLabelValues(refusalReason(wire.CodeOf(err))).Inc()
	}
}

// notAdmitted counts a client that the list does not let in.
func (m *Metrics) notAdmitted() {
	if m != nil {
		m.refusals.WithLabelValues("key").Inc()
	}
}

// ended counts the end of a command, and whether some of its output is not kept.
func (m *Metrics) ended(s wire.ExitStatus, truncated bool) {
	if m == nil {
		return
	}
	m.processes.Dec()
	m.execs.WithLabelValues(execResult(s)).Inc()
	if truncated {
		m.truncated.Inc()
	}
}

func (m *Metrics) printed(stream wire.OutputStream, n int) {
	if m != nil {
		m.output.WithLabelValues(streamName(stream)).Add(float64(n))
	}
}

func (m *Metrics) conversation(change float64) {
	if m != nil {
		m.sessions.Add(change)
	}
}

func streamName(s wire.OutputStream) string {
	switch s {
	case wire.Stdout:
		return "stdout"
	case wire.Stderr:
		return "stderr"
	}
	return "terminal"
}

func connectResult(err error) string {
	if err == nil {
		return resultOK
	}
	if errors.Is(err, wire.ErrLost) {
		return resultUnreached
	}
	e, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return resultUnreached
	}
	switch e.Code {
	case wire.CodeUnauthorized, wire.CodeProtocol, wire.CodeToken:
		return resultAuth
	case wire.CodeVersion:
		return resultVersion
	case wire.CodeBusy, wire.CodeLimit:
		return resultLimited
	case wire.CodeDuplicate, wire.CodeSuperseded:
		return resultDuplicate
	case wire.CodeTimeout:
		return resultTimeout
	}
	return resultRefused
}

func disconnectReason(err error) string {
	e, ok := errors.AsType[*wire.Error](err)
	switch {
	case errors.Is(err, wire.ErrLost):
		return reasonLost
	case !ok:
		return reasonOther
	}
	switch e.Code {
	case wire.CodeShutdown:
		return reasonShutdown
	case wire.CodeSuperseded, wire.CodeDuplicate:
		return reasonSuperseded
	case wire.CodeUnauthorized, wire.CodeRevoked:
		return reasonRevoked
	}
	return reasonOther
}

func execResult(s wire.ExitStatus) string {
	switch s.Cause {
	case wire.CauseTimedOut:
		return "timeout"
	case wire.CauseOOM:
		return "oom"
	case wire.CauseLimit:
		return "limit"
	case wire.CauseTerminated:
		return "terminated"
	case wire.CauseRevoked:
		return "revoked"
	case wire.CauseExecutorLost:
		return "lost"
	case wire.CauseSignalled:
		return "signal"
	}
	if s.Code == 0 {
		return "exit_zero"
	}
	return "exit_nonzero"
}

func refusalReason(c wire.Code) string {
	switch c {
	case wire.CodeUnauthorized, wire.CodeRevoked:
		return "key"
	case wire.CodePolicy:
		return "policy"
	case wire.CodeSandbox:
		return "sandbox"
	case wire.CodeBusy, wire.CodeLimit:
		return "quota"
	case wire.CodeConflict:
		return "conflict"
	case wire.CodeUnknown, wire.CodeShutdown:
		return "state"
	}
	return "other"
}

// sandboxFailure keeps for the metric what the client is told as a text.
type sandboxFailure struct {
	told  *wire.Error
	stage string
}

func (e *sandboxFailure) Error() string { return e.told.Error() }
func (e *sandboxFailure) Unwrap() error { return e.told }

// stageOf is the label value of a sandbox that could not be built.
func stageOf(err error) string {
	if _, ok := errors.AsType[*sandbox.SetupError](err); ok {
		return "setup"
	}
	if _, ok := errors.AsType[*sandbox.UnsupportedError](err); ok {
		return "unsupported"
	}
	if errors.Is(err, sandbox.ErrInitLost) {
		return "lost"
	}
	return "other"
}
