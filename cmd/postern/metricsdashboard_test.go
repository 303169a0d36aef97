//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-relay/postern/keys"
)

const dashboardFile = "deploy/grafana/postern-relay.json"

// dashboardPanel is a part of a dashboard, as far as it is looked at here.
type dashboardPanel struct {
	ID                       *int
	Type, Title, Description string
	Targets                  []struct {
		Expr       string
		Datasource struct{ UID string }
	}
}

func dashboardPanels(t *testing.T) []dashboardPanel {
	t.Helper()
	var d struct {
		ID            *int
		SchemaVersion int
		Panels        []dashboardPanel
		Templating    struct {
			List []struct{ Name, Type string }
		}
	}
	if err := json.Unmarshal([]byte(readText(t, dashboardFile)), &d); err != nil {
		t.Fatal(err)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if d.SchemaVersion != 39 || d.ID != nil || !slices.Equal(variables, []string{"datasource", "instance"}) || len(d.Panels) == 0 {
		t.Errorf("schema %d, id %v, variables %q, %d panels", d.SchemaVersion, d.ID, variables, len(d.Panels))
	}
	return d.Panels
}

func TestDashboardCanBeImportedAnywhere(t *testing.T) {
	t.Parallel()
	for _, p := range dashboardPanels(t) {
		if p.Type == "row" {
			continue
		}
		if p.ID != nil || p.Title == "" || p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q: it has an id, or no description, or nothing to show", p.Title)
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" {
				t.Errorf("panel %q asks %q", p.Title, target.Datasource.UID)
			}
		}
	}
}

// newLoadedRelay has done a little of everything that a day brings.
func newLoadedRelay(t *testing.T) *watchedRelay {
	t.Helper()
	w := newWatchedRelay(t, "--tenant-metrics", "--accounting", t.TempDir()+"/accounting")
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	w.admit(rosterText("tenant acme", memberLine(client, "c"), memberLine(executor, "e")))
	w.work(client, executor)
	return w
}

// work carries something through a circuit, and dials in vain.
func (w *watchedRelay) work(client, executor *keys.PrivateKey) {
	w.t.Helper()
	e := w.join(executor)
	c := w.join(client)
	near, far := joinedCircuit(w.t, c, e, executor)
	if _, err := near.Write(make([]byte, 1000)); err != nil {
		w.t.Fatal(err)
	}
	endCircuit(near, far)
	if _, err := c.dial(newKey(w.t, keys.Executor)); err == nil {
		w.t.Fatal("an executor that is not there was dialled")
	}
	c.leave()
	e.leave()
}

func TestEachPanelOfTheDashboardShowsSomething(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	w := newLoadedRelay(t)
	p := startPrometheus(t, w)
	variables := strings.NewReplacer("$__rate_interval", "1m", "$instance", ".+")
	panels := dashboardPanels(t)
	var empty []string
	if !eventually(func() bool { // rates need two scrapes
		empty = nil
		for _, panel := range panels {
			for _, target := range panel.Targets {
				expr := variables.Replace(target.Expr)
				if found, err := p.query(expr); err != nil || len(found) == 0 {
					empty = append(empty, fmt.Sprintf("panel %q: %s: %d series, %v", panel.Title, expr, len(found), err))
				}
			}
		}
		return len(empty) == 0
	}) {
		t.Errorf("nothing is shown by\n%s", strings.Join(empty, "\n"))
	}
}

var (
	metricName     = regexp.MustCompile(`(?:^|[^:\w])(postern_relay_\w+)`)
	recordedName   = regexp.MustCompile(`job:\w+:\w+`)
	labelMatcher   = regexp.MustCompile(`(postern_relay_\w+)\{([^{}]*)\}`)
	labelCondition = regexp.MustCompile(`(\w+)(?:=~|!~|!=|=)"([^"]*)"`)
)

// Rules and panels that ask for what no relay shows are silent for ever.
func TestRulesAndPanelsAskForWhatARelayShows(t *testing.T) {
	t.Parallel()
	w := newLoadedRelay(t)
	families, series := w.families(), w.series()
	labelled := func(metric, label, value string) bool {
		for name := range series {
			if strings.HasPrefix(name, metric+"{") && strings.Contains(name, label+`="`+value+`"`) {
				return true
			}
		}
		return false
	}
	rules := readText(t, "deploy/prometheus/rules.yml")
	texts := map[string]string{"rules.yml": rules}
	for _, p := range dashboardPanels(t) {
		for _, target := range p.Targets {
			texts["panel "+p.Title] += target.Expr + "\n"
		}
	}
	for where, text := range texts {
		for _, m := range metricName.FindAllStringSubmatch(text, -1) {
			if families[familyOf(m[1])] == "" {
				t.Errorf("%s: no relay shows %s", where, m[1])
			}
		}
		for _, name := range recordedName.FindAllString(text, -1) {
			if !strings.Contains(rules, "- record: "+name+"\n") {
				t.Errorf("%s: no rule records %s", where, name)
			}
		}
		for _, m := range labelMatcher.FindAllStringSubmatch(text, -1) {
			for _, c := range labelCondition.FindAllStringSubmatch(m[2], -1) {
				if c[1] == "instance" || c[1] == "job" {
					continue
				}
				for value := range strings.SplitSeq(c[2], "|") {
					if !labelled(m[1], c[1], value) {
						t.Errorf("%s: %s never has %s=%q", where, m[1], c[1], value)
					}
				}
			}
		}
	}
}
