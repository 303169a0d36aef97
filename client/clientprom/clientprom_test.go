package clientprom

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/wire"
)

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
			name.WriteString(strings.TrimPrefix(f.GetName(), "postern_client_"))
			for _, l := range m.GetLabel() {
				name.WriteString(" " + l.GetValue())
			}
			all[name.String()] = m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return all
}

func TestEveryEventMovesItsSeriesAndNoOther(t *testing.T) {
	t.Parallel()
	m := New()
	r := prometheus.NewPedanticRegistry()
	if err := r.Register(m); err != nil {
		t.Fatal(err)
	}
	code := func(c wire.Code) error { return fmt.Errorf("context: %w", &wire.Error{Code: c, Text: "t"}) }
	end := func(cause wire.Cause, exit int) func() {
		return func() { m.Ended(&wire.ExitStatus{Cause: cause, Code: exit}, nil) }
	}
	for _, c := range []struct {
		event func()
		want  string
	}{
		{func() { m.Connected(nil) }, "connects_total ok"},
		{func() { m.Connected(errors.New("no route")) }, "connects_total unreachable"},
		{func() { m.Connected(code(wire.CodeUnauthorized)) }, "connects_total auth"},
		{func() { m.Connected(code(wire.CodeVersion)) }, "connects_total version"},
		{func() { m.Connected(code(wire.CodeBusy)) }, "connects_total busy"},
		{func() { m.Connected(code(wire.CodeTimeout)) }, "connects_total timeout"},
		{func() { m.Connected(code(9999)) }, "connects_total refused"},
		{func() { m.Founded(time.Second, code(wire.CodeUnreachable)) }, "dials_total unreachable"},
		{func() { m.Lost(wire.ErrLost) }, "retries_total lost"},
		{func() { m.Lost(code(wire.CodeShutdown)) }, "retries_total shutdown"},
		{func() { m.Lost(code(wire.CodeTimeout)) }, "retries_total silent"},
		{func() { m.Lost(code(9999)) }, "retries_total other"},
		{func() { m.Resumed(nil) }, "resumes_total ok"},
		{func() { m.Resumed(wire.ErrLost) }, "resumes_total gone"},
		{end(wire.CauseExited, 0), "commands_total exited"},
		{end(wire.CauseExited, 1), "commands_total failed"},
		{end(wire.CauseSignalled, 0), "commands_total signalled"},
		{end(wire.CauseTimedOut, 0), "commands_total timeout"},
		{end(wire.CauseLimit, 0), "commands_total ended"},
		{end(wire.CauseExecutorLost, 0), "commands_total lost"},
		{func() { m.Ended(nil, wire.ErrLost) }, "commands_total lost"},
		{func() { m.Ended(nil, code(wire.CodeUnknown)) }, "commands_total lost"},
		{func() { m.Ended(nil, code(wire.CodePolicy)) }, "commands_total refused"},
	} {
		before := readings(t, r)
		c.event()
		after := readings(t, r)
		before[c.want]++
		if !maps.Equal(before, after) {
			t.Errorf("%s: %v became %v", c.want, before, after)
		}
	}
	before := readings(t, r)
	m.Founded(time.Second, nil)
	after := readings(t, r)
	before["dials_total ok"]++
	before["dial_duration_seconds"]++
	if !maps.Equal(before, after) {
		t.Errorf("a handshake that went well: %v became %v", before, after)
	}
}
