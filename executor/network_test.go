package executor

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/sandbox/egress"
	"github.com/postern-relay/postern/wire"
)

var networkHosts = []string{"a.example:443", "a.example:80", "a.example:8443", "b.example:443", "c.example:22"}

// reaches tells whether a network, or the most of one, lets commands reach a host.
func (n Network) reaches(host string) bool {
	rules, err := egress.ParseRules(host)
	return err == nil && (n.anyHost() || n.Mode == wire.NetworkAllowList && rules.Within(n.Rules))
}

func rulesOf(t *testing.T, text string) egress.Rules {
	t.Helper()
	rules, err := egress.ParseRules(text)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func randomNetwork(t *testing.T, r *rand.Rand) Network {
	n := Network{Mode: wire.NetworkMode(r.IntN(4))}
	var some []string
	for _, host := range networkHosts {
		if r.IntN(2) == 0 {
			some = append(some, host)
		}
	}
	if n.Mode == wire.NetworkAllowList {
		n.Any = r.IntN(4) == 0
		n.Rules = rulesOf(t, strings.Join(some, ","))
	}
	return n
}

func TestNetworkIsParsedAsItIsWritten(t *testing.T) {
	for _, c := range []struct {
		text string
		most bool
		want wire.Network
		any  bool
		bad  string
	}{
		{text: "none", want: wire.Network{Mode: wire.NetworkNone}},
		{text: "host", want: wire.Network{Mode: wire.NetworkHost}},
		{text: "allow=B.example.,a.example:8443", want: wire.Network{Mode: wire.NetworkAllowList, Allow: []string{"a.example:8443", "b.example"}}},
		{text: "allow", most: true, want: wire.Network{Mode: wire.NetworkAllowList}, any: true},
		{text: "allow", bad: "want none, host or allow=HOST"},
		{text: "allow=", bad: "name at least one host"},
		{text: "allow=", most: true, bad: "name at least one host"},
		{text: "", bad: "want none"},
		{text: "Host", bad: "want none"},
		{text: "allow=10.0.0.1", bad: "10.0.0.1"},
		{text: "allow=*.example.com", bad: "*"},
	} {
		n, err := ParseNetwork(c.text, c.most)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q: %v, want an error with %q", c.text, err, c.bad)
			}
			continue
		}
		if got := n.Wire(); err != nil || got.Mode != c.want.Mode || !slices.Equal(got.Allow, c.want.Allow) || n.Any != c.any {
			t.Errorf("%q: %+v (any %t), %v, want %+v", c.text, got, n.Any, err, c.want)
		}
	}
}

func TestWiderNetworkThanTheOwnersOrTheLinesIsRefused(t *testing.T) {
	list := func(hosts ...string) wire.Network {
		return wire.Network{Mode: wire.NetworkAllowList, Allow: hosts}
	}
	host := wire.Network{Mode: wire.NetworkHost}
	some := Network{Mode: wire.NetworkAllowList, Rules: rulesOf(t, "a.example,b.example:8443")}
	anybody := Network{Mode: wire.NetworkAllowList, Any: true}
	for _, c := range []struct {
		name  string
		most  Network
		line  keys.NetworkCeiling
		asked wire.Network
		want  wire.Code // zero: allowed
	}{
		{"nothing from nobody", Network{}, keys.NetworkNone, wire.Network{}, 0},
		{"a session of its own loopback", Network{}, keys.NetworkNone, wire.Network{Mode: wire.NetworkNone, Session: "s"}, 0},
		{"a list from an owner who said nothing", Network{}, keys.NetworkHost, list("a.example"), wire.CodePolicy},
		{"an empty list from an owner who said nothing", Network{}, keys.NetworkHost, list(), wire.CodePolicy},
		{"the machine's from an owner who said nothing", Network{}, keys.NetworkHost, host, wire.CodePolicy},
		{"a part of the owner's list", some, keys.NetworkAllowList, list("a.example:443"), 0},
		{"a host beyond the owner's list", some, keys.NetworkHost, list("a.example", "c.example"), wire.CodePolicy},
		{"a port beyond the owner's list", some, keys.NetworkHost, list("b.example"), wire.CodePolicy},
		{"the machine's beyond the owner's list", some, keys.NetworkHost, host, wire.CodePolicy},
		{"any host where any may be asked for", anybody, keys.NetworkAllowList, list("c.example:22"), 0},
		{"the machine's where any host may be asked for", anybody, keys.NetworkHost, host, wire.CodePolicy},
		{"the machine's", Network{Mode: wire.NetworkHost}, keys.NetworkHost, host, 0},
		{"the machine's with a line that has less", Network{Mode: wire.NetworkHost}, keys.NetworkAllowList, host, wire.CodePolicy},
		{"a list with a line that has less than the owner", Network{Mode: wire.NetworkHost}, keys.NetworkAllowList, list("a.example"), 0},
		{"a list with a line that has none", Network{Mode: wire.NetworkHost}, keys.NetworkNone, list("a.example"), wire.CodePolicy},
		{"an address", anybody, keys.NetworkHost, list("10.0.0.1"), wire.CodeBadRequest},
		{"a list with commas in a host", some, keys.NetworkHost, list("a.example,c.example"), wire.CodePolicy},
	} {
		got, err := c.most.within(c.line).request(c.asked)
		if wire.CodeOf(err) != c.want && !(err == nil && c.want == 0) {
			t.Errorf("%s: %v, want code %v", c.name, err, c.want)
		}
		if err == nil && got.Any {
			t.Errorf("%s: a command may reach any host", c.name)
		}
	}
}

func TestFullAccessHasTheMachinesNetworkAndNoOther(t *testing.T) {
	all := Policy{Sandbox: wire.SandboxFullAccess, View: wire.ViewFull}
	for _, c := range []struct {
		most  Policy
		asked wire.NetworkMode
		want  wire.NetworkMode
		code  wire.Code
	}{
		{all, 0, wire.NetworkHost, 0},
		{all, wire.NetworkHost, wire.NetworkHost, 0},
		{all, wire.NetworkNone, 0, wire.CodeBadRequest},
		{all, wire.NetworkAllowList, 0, wire.CodeBadRequest},
		{Policy{Sandbox: wire.SandboxWorkspaceWrite}, 0, wire.NetworkNone, 0},
		{Policy{Sandbox: wire.SandboxWorkspaceWrite}, wire.NetworkHost, 0, wire.CodePolicy},
	} {
		got, err := c.most.requestNetwork(wire.ExecParams{Sandbox: wire.SandboxFullAccess, Network: wire.Network{Mode: c.asked}})
		if c.code != 0 {
			if wire.CodeOf(err) != c.code {
				t.Errorf("%v of %v: %v, want code %v", c.asked, c.most.Sandbox, err, c.code)
			}
			continue
		}
		if err != nil || got.Mode != c.want {
			t.Errorf("%v of %v: %v, %v, want %v", c.asked, c.most.Sandbox, got.Mode, err, c.want)
		}
	}
}
