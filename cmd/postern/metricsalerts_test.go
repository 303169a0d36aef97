//go:build linux

package main

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

func TestShippedRulesPassTheirOwnTests(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	const folder = repository + "/deploy/prometheus/"
	promtool(t, "", "check", "config", folder+"prometheus.yml")
	promtool(t, "", "check", "rules", folder+"rules.yml")
	promtool(t, "", "test", "rules", folder+"rules_test.yml")
}

func TestEachAlertHasItsTest(t *testing.T) {
	t.Parallel()
	tests := readText(t, "deploy/prometheus/rules_test.yml")
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(readText(t, "deploy/prometheus/rules.yml"), -1) {
		if !strings.Contains(tests, `alertname="`+m[1]+`"`) {
			t.Errorf("no test of %s", m[1])
		}
	}
}

// A real relay is driven into the states, and a real Prometheus notices.
func TestAlertsFireForARealRelayAndForNothingElse(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	w := newWatchedRelay(t)
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	list := rosterText("tenant acme", memberLine(client, "c"), memberLine(executor, "e"))
	w.admit(list)
	w.join(executor)
	token := w.token(client)
	if err := joinWith(t, token, newKey(t, keys.Executor), "joined"); err != nil {
		t.Fatal(err)
	}
	p := startPrometheus(t, w)
	p.finds("what to compare with", `count_over_time(postern_relay_joins_total{result="spent"}[1m]) > 2`)
	if !eventually(func() bool { return len(p.firing()) == 0 }) { // on a busy machine the first scrapes take too long
		t.Errorf("a relay at rest makes %v fire", p.firing())
	}
	for _, c := range []struct {
		alert string
		cause func()
	}{
		{"PosternReloadFailed", func() {
			w.write("relay/tenants", "nonsense\n")
			w.hangUp()
		}},
		{"PosternDuplicateIdentity", func() {
			if _, err := w.tryJoin(w.url.Address(), w.url.Key, executor, helloOf(executor)); wire.CodeOf(err) != wire.CodeDuplicate {
				t.Fatalf("a second machine is told %v", err)
			}
		}},
		{"PosternJoinTokenMisuse", func() {
			if err := joinWith(t, token, newKey(t, keys.Executor), "thief"); wire.CodeOf(err) != wire.CodeToken {
				t.Fatalf("a second machine is told %v", err)
			}
		}},
	} {
		c.cause()
		if !eventually(func() bool { return p.firing()[c.alert] }) {
			t.Errorf("%s does not fire", c.alert)
		}
	}
	w.admit(list)
	if !eventually(func() bool { return !p.firing()["PosternReloadFailed"] }) {
		t.Error("PosternReloadFailed goes on although the list is good again")
	}
	w.relay.kill()
	if !eventually(func() bool { return p.firing()["PosternRelayDown"] }) {
		t.Error("PosternRelayDown does not fire")
	}
	want := []string{"PosternDuplicateIdentity", "PosternJoinTokenMisuse", "PosternRelayDown"}
	if now := slices.Sorted(maps.Keys(p.firing())); !slices.Equal(now, want) {
		t.Errorf("in the end %v fire, want %v", now, want)
	}
}
