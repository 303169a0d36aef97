//go:build linux

package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTableKeepsWhatStandsAroundItsMarkers(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"a new file", "", aroundMeasures.begin + "\n\nT\n\n" + aroundMeasures.end + "\n"},
		{"no markers yet", "before\n", "before\n\n" + aroundMeasures.begin + "\n\nT\n\n" + aroundMeasures.end + "\n"},
		{"an old table", "before\n" + aroundMeasures.begin + "\nold\n" + aroundMeasures.end + "\nafter", "before\n" + aroundMeasures.begin + "\n\nT\n\n" + aroundMeasures.end + "\nafter"},
	} {
		got, err := aroundMeasures.put(test.text, "T\n")
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, got, err, test.want)
		}
		if again, err := aroundMeasures.put(got, "T"); err != nil || again != got {
			t.Errorf("%s: a second time it is %q, %v", test.name, again, err)
		}
	}
}

func TestTableIsNotPutBetweenHalfMarkers(t *testing.T) {
	for _, text := range []string{
		aroundMeasures.begin, aroundMeasures.end, aroundMeasures.end + aroundMeasures.begin,
		aroundMeasures.begin + aroundMeasures.end + aroundMeasures.begin + aroundMeasures.end, aroundMeasures.begin + aroundMeasures.begin + aroundMeasures.end,
	} {
		if got, err := aroundMeasures.put(text, "T"); err == nil {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// reported is the report of one measure with fixed figures.
func reported(name, path string, delay time.Duration, figures map[string]float64, peers ...string) measureReport {
	m := &measure{name: name, path: path, rounds: 1, loads: []float64{1}, quantities: []quantity{{name: "time", unit: "ms"}}, contenders: []contender{{name: postern}}}
	for _, peer := range peers {
		m.contenders = append(m.contenders, contender{name: peer, peer: true})
	}
	all := make(samples)
	for side, figure := range figures {
		all[side] = [][]float64{{figure}}
	}
	var r report
	r.add(m, all, delay)
	return r.Measures[0]
}

func TestTargetsAreJudgedByTheRatioToTheirPeer(t *testing.T) {
	for _, test := range []struct {
		path  string
		delay time.Duration
		ours  float64
		want  string
	}{
		{loopback, targetDelay, 30, "≤ 0.1 met, ≤ 0.03 met"},
		{loopback, targetDelay, 100, "≤ 0.1 met, ≤ 0.03 **missed**"},
		{loopback, targetDelay, 101, "≤ 0.1 **missed**, ≤ 0.03 **missed**"},
		{delayed, targetDelay, 120, "≤ 0.15 met, ≤ 0.1 **missed**"},
		{delayed, time.Second, 120, ""}, // nothing was promised for that
	} {
		d := reported(coldExec, test.path, test.delay, map[string]float64{postern: test.ours, sshDefault: 1000}, sshDefault)
		if got := d.Rows[0].verdict(); got != test.want {
			t.Errorf("%v of 1000 ms, %s with %v: %q, want %q", test.ours, test.path, test.delay, got, test.want)
		}
	}
}

func TestWithoutSSHTheTableHasPosternAlone(t *testing.T) {
	r := report{SSH: "not installed", Measures: []measureReport{reported(coldExec, loopback, 0, map[string]float64{postern: 12})}}
	text := r.markdown()
	if !strings.Contains(text, "ssh: not installed") || !strings.Contains(text, "| cold exec | loopback | time | postern | 12.0 ms |") {
		t.Errorf("the table is\n%s", text)
	}
}

// A peer that used too little processor time to be counted has no ratio, and the report is valid all the same.
func TestNothingIsDividedByNothing(t *testing.T) {
	d := reported(coldExec, loopback, targetDelay, map[string]float64{postern: 12, sshDefault: 0}, sshDefault)
	if d.Rows[0].Ratio != nil || d.Rows[0].verdict() != "" {
		t.Errorf("the row is %+v", d.Rows[0])
	}
	if _, err := json.Marshal(d); err != nil {
		t.Error(err)
	}
}

func TestEveryTargetIsOfAMeasureThatThereIs(t *testing.T) {
	names := make(map[string]bool)
	for _, m := range onPath {
		names[m.name] = true
	}
	for _, m := range once {
		names[m.name] = true
	}
	for _, name := range measureNames {
		if !names[name] {
			t.Errorf("-only takes %q, which there is not", name)
		}
	}
	if len(names) != len(measureNames) {
		t.Errorf("-only takes %d measures of %d", len(measureNames), len(names))
	}
	for _, target := range targets {
		better := target.Aim < target.Must
		if target.AtLeast {
			better = target.Aim > target.Must
		}
		if !names[target.measure] || !better {
			t.Errorf("target %+v", target)
		}
	}
}

func TestALaterRunReplacesWhatItHasMeasuredAgain(t *testing.T) {
	at := func(name, path string, rounds int) measureReport {
		return measureReport{Name: name, Path: path, Rounds: rounds}
	}
	old := report{Revision: "old", Measures: []measureReport{at(coldExec, loopback, 1), at(coldExec, delayed, 1), at(echo, loopback, 1)}, Peers: []peerReport{{Name: sshDefault, Path: loopback}}}
	got := merge(old, report{Revision: "next", Measures: []measureReport{at(coldExec, delayed, 2), at(idle, "20 executors", 2)}})
	got.sort()
	want := []measureReport{at(coldExec, loopback, 1), at(coldExec, delayed, 2), at(echo, loopback, 1), at(idle, "20 executors", 2)}
	if !slices.EqualFunc(got.Measures, want, func(a, b measureReport) bool { return a.same(b) && a.Rounds == b.Rounds }) || got.Revision != "next" || len(got.Peers) != 1 {
		t.Errorf("merged: %+v", got)
	}
	if got := merge(old, report{Revision: "next"}); got.Revision != "old" || len(got.Measures) != 3 {
		t.Errorf("with nothing new: %+v", got)
	}
}
