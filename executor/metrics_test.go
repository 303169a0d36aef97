package executor_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

// readings are the values of all series, as "name value-of-label".
func readings(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var name strings.Builder
			name.WriteString(strings.TrimPrefix(f.GetName(), "postern_executor_"))
			for _, l := range m.GetLabel() {
				name.WriteString(" " + l.GetValue())
			}
			all[name.String()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

// moved is what changed between two readings.
func moved(before, after map[string]float64) map[string]float64 {
	changes := make(map[string]float64)
	for name, value := range after {
		if d := value - before[name]; d != 0 {
			changes[name] = d
		}
	}
	return changes
}

func TestEveryEndOfACommandIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		metrics, err := executor.NewMetrics(registry)
		if err != nil {
			t.Fatal(err)
		}
		b, err := executor.NewLocal(executor.LocalConfig{Runner: new(executortest.Runner), Metrics: metrics, MaxExecs: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		for _, c := range []struct {
			name string
			p    wire.ExecParams
			want map[string]float64
		}{
			{"ends well", wire.ExecParams{Argv: []string{"echo", "word"}}, map[string]float64{"processes_total exit_zero": 1, "start_duration_seconds": 1, "output_bytes_total stdout": 5}},
			{"ends badly", wire.ExecParams{Argv: []string{"exit", "3"}}, map[string]float64{"processes_total exit_nonzero": 1, "start_duration_seconds": 1}},
			{"complains", wire.ExecParams{Argv: []string{"complain", "word"}}, map[string]float64{"processes_total exit_zero": 1, "start_duration_seconds": 1, "output_bytes_total stderr": 5}},
			{"dies", wire.ExecParams{Argv: []string{"die", "KILL"}}, map[string]float64{"processes_total signal": 1, "start_duration_seconds": 1}},
			{"takes too long", wire.ExecParams{Argv: []string{"sleep", "1h"}, Timeout: time.Second}, map[string]float64{"processes_total timeout": 1, "start_duration_seconds": 1}},
			{"is not there", wire.ExecParams{Argv: []string{"no-such-command"}}, map[string]float64{"processes_total start_error": 1}},
			{"wants more than there is", wire.ExecParams{Argv: []string{"true"}, Roots: []string{"/elsewhere"}}, map[string]float64{"processes_total refused": 1, "policy_refusals_total policy": 1}},
		} {
			before := readings(t, registry)
			if p, err := b.Start(t.Context(), c.p); err == nil {
				if _, err := p.Wait(t.Context()); err != nil {
					t.Errorf("%s: %v", c.name, err)
				}
				p.Close()
			}
			synctest.Wait()
			if got := moved(before, readings(t, registry)); !maps.Equal(got, c.want) {
				t.Errorf("a command that %s moves %v, want %v", c.name, got, c.want)
			}
		}

		// The limit of commands, and one that the executor ends itself.
		p, err := b.Start(t.Context(), wire.ExecParams{Argv: []string{"sleep", "1h"}})
		if err != nil {
			t.Fatal(err)
		}
		before := readings(t, registry)
		if before["processes"] != 1 {
			t.Errorf("%v processes while one runs", before["processes"])
		}
		if _, err := b.Start(t.Context(), wire.ExecParams{Argv: []string{"true"}}); wire.CodeOf(err) != wire.CodeBusy {
			t.Errorf("a second command: %v, want busy", err)
		}
		if err := p.Terminate(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Close()
		synctest.Wait()
		want := map[string]float64{"processes": -1, "processes_total refused": 1, "policy_refusals_total quota": 1, "processes_total terminated": 1}
		if got := moved(before, readings(t, registry)); !maps.Equal(got, want) {
			t.Errorf("one command too many moves %v, want %v", got, want)
		}
	})
}

// A dashboard that looks for a rate before the first event must find a zero.
func TestMetricsOfAnExecutorAreThereFromTheBeginning(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	if _, err := executor.NewMetrics(registry); err != nil {
		t.Fatal(err)
	}
	all := slices.Sorted(maps.Keys(readings(t, registry)))
	for _, name := range []string{"connects_total ok", "disconnects_total lost", "processes_total oom", "sandbox_failures_total setup", "policy_refusals_total key", "output_bytes_total terminal", "connected"} {
		if !slices.Contains(all, name) {
			t.Errorf("%q is not there before its first event; there are %q", name, all)
		}
	}
	if _, err := executor.NewMetrics(registry); err == nil {
		t.Error("the same registry takes them twice")
	}
}
