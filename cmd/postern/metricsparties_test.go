//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/client/clientprom"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// Each family of an executor and of a client is moved by an event that goes through a real relay.
func TestEachFamilyOfExecutorAndClientIsMovedByAnEvent(t *testing.T) {
	t.Parallel()
	s := &partiesStory{t: t, relay: relaytest.Start(t), registry: prometheus.NewPedanticRegistry()}
	s.url, s.key = s.parse(), s.relay.NewPeer(keys.Executor)
	var err error
	if s.metrics, err = executor.NewMetrics(s.registry); err != nil {
		t.Fatal(err)
	}
	observer := clientprom.New()
	s.registry.MustRegister(observer)
	s.allowed, s.other = s.newClient(observer), s.newClient(observer)
	moved := play(t, "postern_", func() map[string]float64 { return gathered(t, s.registry) }, slices.Concat(s.running(), s.failing(), s.interrupted()))
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, f := range families {
		shown = append(shown, f.GetName())
	}
	wantSameFamilies(t, moved, shown)
}

// gathered is the value of each series, for a histogram its count, and under the name of each family their sum.
func gathered(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[f.GetName()] += value
			var name strings.Builder
			name.WriteString(f.GetName())
			for _, l := range m.GetLabel() {
				fmt.Fprintf(&name, "{%s=%q}", l.GetName(), l.GetValue())
			}
			all[name.String()] = value
		}
	}
	return all
}

// partiesStory is an executor and its clients at a relay.
type partiesStory struct {
	t        *testing.T
	relay    *relaytest.Relay
	url      keys.RelayURL
	registry *prometheus.Registry
	metrics  *executor.Metrics
	key      *keys.PrivateKey
	allowed  *client.Client
	other    *client.Client // whom the executor does not let in
	keys     []keys.PublicKey
}

func (s *partiesStory) parse() keys.RelayURL {
	url, err := keys.ParseRelayURL(s.relay.URL())
	if err != nil {
		s.t.Fatal(err)
	}
	return url
}

func (s *partiesStory) newClient(o client.Observer) *client.Client {
	key := s.relay.NewPeer(keys.Client)
	c, err := client.New(client.Config{Key: key, Relay: s.url, Observer: o})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	s.keys = append(s.keys, key.Public())
	return c
}

// unbuildable starts commands in memory, but for those named "sandboxed": they get a real sandbox, in a folder
// that is not there.
type unbuildable struct {
	*executortest.Runner
	sandboxes executor.Runner
}

func (u unbuildable) Run(ctx context.Context, spec executor.Spec) (executor.Running, error) {
	if spec.Argv[0] != "sandboxed" {
		return u.Runner.Run(ctx, spec)
	}
	spec.Policy.Roots = []string{"/there/is/no/such/folder"}
	return u.sandboxes.Run(ctx, spec)
}

// execute runs an executor that comes back at once whenever its relay is gone, and lets the first client in.
func (s *partiesStory) execute() {
	launcher, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { launcher.Close() })
	b, err := executor.NewLocal(executor.LocalConfig{
		Runner:  unbuildable{new(executortest.Runner), executor.NewSandboxRunner(launcher)},
		Metrics: s.metrics, State: s.t.TempDir(), LogBytes: 1 << 20, Workspaces: []string{s.t.TempDir()},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	e, err := executor.New(executor.Config{
		Key: s.key, Name: "box", Relay: s.url.Key, Clients: admitting(s.t, s.keys[0]), Backend: b, Metrics: s.metrics,
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return quicconn.Dial(ctx, s.url.Address(), quicconn.Options{Role: wire.RoleExecutor})
		},
		Backoff: quicconn.Backoff{Base: 20 * time.Millisecond, Settled: time.Millisecond},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) }) // it ends with the context
	s.t.Cleanup(func() {
		_ = b.Close()
		cancel()
		running.Wait()
	})
}

func (s *partiesStory) start(argv ...string) (wire.ExecProcess, error) {
	return s.allowed.Executor(s.key.Public()).Start(s.t.Context(), wire.ExecParams{Argv: argv})
}

// run is a command from its start to its end; that the executor refuses it is one too.
func (s *partiesStory) run(argv ...string) {
	p, err := s.start(argv...)
	if err != nil {
		return
	}
	s.t.Cleanup(func() { _ = p.Close() }) // a handle that is closed before its link has ended may not be counted
	_, _ = p.Wait(s.t.Context())          // what is counted shows how it ended
}

func (s *partiesStory) running() []movement {
	return []movement{
		{"an executor registers", s.execute, []string{"executor_connected", `executor_connects_total{result="ok"}`, "executor_clock_offset_seconds"}},
		{"a command runs for long", func() {
			p, err := s.start("sleep", "1h")
			if err != nil {
				s.t.Fatal(err)
			}
			s.t.Cleanup(func() { _ = p.Close() })
		}, []string{"executor_processes", "executor_sessions", `client_connects_total{result="ok"}`, `client_dials_total{result="ok"}`, "client_dial_duration_seconds"}},
		{"a client runs a command", func() { s.run("echo", "word") }, []string{
			`client_commands_total{result="exited"}`,
			`executor_processes_total{result="exit_zero"}`, "executor_start_duration_seconds", `executor_output_bytes_total{stream="stdout"}`,
		}},
		{"a command prints more than is kept", func() {
			p, err := s.allowed.Executor(s.key.Public()).Start(s.t.Context(), wire.ExecParams{Argv: []string{"flood", "8000000"}, Detach: true})
			if err != nil {
				s.t.Fatal(err)
			}
			_ = p.Close() // nobody takes what it prints
		}, []string{"executor_output_truncated_total"}},
	}
}

func (s *partiesStory) failing() []movement {
	return []movement{
		{"a command wants a folder that is not the executor's", func() {
			if _, err := s.allowed.Executor(s.key.Public()).Start(s.t.Context(), wire.ExecParams{Argv: []string{"true"}, Roots: []string{"/elsewhere"}}); wire.CodeOf(err) != wire.CodePolicy {
				s.t.Fatalf("it is told %v", err)
			}
		}, []string{`executor_policy_refusals_total{reason="policy"}`, `executor_processes_total{result="refused"}`, `client_commands_total{result="refused"}`}},
		{"a client comes that is not listed", func() {
			if _, err := s.other.Executor(s.key.Public()).Start(s.t.Context(), wire.ExecParams{Argv: []string{"true"}}); wire.CodeOf(err) != wire.CodeUnauthorized {
				s.t.Fatalf("it is told %v", err)
			}
		}, []string{`executor_policy_refusals_total{reason="key"}`, `client_dials_total{result="auth"}`}},
		{"a sandbox cannot be built", func() { s.run("sandboxed") }, []string{"executor_sandbox_failures_total", `executor_processes_total{result="start_error"}`}},
	}
}

func (s *partiesStory) interrupted() []movement {
	return []movement{
		{"the relay is restarted meanwhile", s.relay.Restart, []string{
			"executor_disconnects_total", `executor_connects_total{result="ok"}`, "executor_reconnect_duration_seconds",
			"client_retries_total", `client_resumes_total{result="ok"}`,
		}},
		{"the relay does not admit the executor any more", func() { s.relay.Remove(s.key.Public()) }, []string{
			"executor_disconnects_total", `executor_connects_total{result="auth"}`, "executor_connected",
		}},
	}
}
