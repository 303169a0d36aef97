//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// matrix is two tenants at one relay, with every sort of member. Executors and clients are the real ones over real
// QUIC; only the commands are not processes.
type matrix struct {
	t       *testing.T
	relay   *relaytest.Relay
	url     keys.RelayURL
	runner  *executortest.Runner
	keys    map[string]*keys.PrivateKey
	serving sync.WaitGroup
	ctx     context.Context
}

// peer is somebody of a tenant, or of none.
func (m *matrix) peer(tenant, name string, kind keys.Kind) *keys.PrivateKey {
	m.t.Helper()
	key := newKey(m.t, kind)
	if m.keys[name] = key; tenant != "" {
		m.relay.AllowIn(tenant, key.Public())
	}
	return key
}

// line lets a client in.
type line struct{ options, who string }

// serve runs an executor with these lines until the test ends.
func (m *matrix) serve(name string, lines ...line) {
	m.t.Helper()
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(strings.TrimSpace(l.options+" "+m.keys[l.who].Public().String()) + "\n")
	}
	list, err := keys.ParseAuthorizedClients("lines", strings.NewReader(text.String()))
	if err != nil {
		m.t.Fatal(err)
	}
	backend, err := executor.NewLocal(executor.LocalConfig{Runner: m.runner, Workspaces: []string{"/work"}, Max: wire.SandboxFullAccess})
	if err != nil {
		m.t.Fatal(err)
	}
	registered := make(chan struct{}, 1)
	e, err := executor.New(executor.Config{
		Key: m.keys[name], Name: name, Relay: m.url.Key, Clients: func() *keys.AuthorizedClients { return list }, Backend: backend,
		Dial: m.dial, Registered: func(wire.HopWelcome) {
			select {
			case registered <- struct{}{}:
			default: // it has come back
			}
		},
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.serving.Go(func() {
		defer backend.Close()
		e.Run(m.ctx)
	})
	select {
	case <-registered:
	case <-m.t.Context().Done():
		m.t.Fatalf("%s is not registered", name)
	}
}

func (m *matrix) dial(ctx context.Context) (wire.Transport, error) {
	return relaytest.Dial(ctx, m.url.Address(), quicconn.Options{Role: wire.RoleExecutor})
}

// register is one attempt of a machine to register, which must be refused, and the relay's answer.
func (m *matrix) register(name string) wire.Code {
	m.t.Helper()
	t, err := m.dial(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	defer t.Close(wire.CodeShutdown, "")
	_, err = noiseconn.Join(m.t.Context(), t, m.keys[name], m.url.Key, &wire.HopHello{
		Role: wire.RoleExecutor, Versions: wire.Versions, Name: name, Instance: wire.ID(wire.NewExecID()),
	})
	if err == nil {
		m.t.Errorf("%s is registered", name)
	}
	return wire.CodeOf(err)
}

// client is a client of the relay's with this key.
func (m *matrix) client(name string) *client.Client {
	m.t.Helper()
	c, err := client.New(client.Config{Key: m.keys[name], Relay: m.url, Patience: -1})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { c.Close() })
	return c
}

// try runs a command to its end, and says how that went in a word.
func (m *matrix) try(c *client.Client, executor, argv string, mode wire.SandboxMode) string {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
	defer cancel()
	p, err := c.Executor(m.keys[executor].Public()).Start(ctx, wire.ExecParams{Argv: strings.Fields(argv), Sandbox: mode})
	if err != nil {
		return wire.CodeOf(err).String()
	}
	defer p.Close()
	if status, err := p.Wait(ctx); err != nil || status.Code != 0 {
		return fmt.Sprintf("%v, %v", status, err)
	}
	return p.Info().Sandbox.String()
}

func TestAccessMatrix(t *testing.T) {
	t.Parallel()
	m := &matrix{t: t, relay: relaytest.Start(t), runner: new(executortest.Runner), keys: make(map[string]*keys.PrivateKey)}
	var err error
	if m.url, err = keys.ParseRelayURL(m.relay.URL()); err != nil {
		t.Fatal(err)
	}
	var cancel context.CancelFunc
	m.ctx, cancel = context.WithCancel(context.Background())
	defer func() {
		cancel()
		m.serving.Wait()
	}()
	ok := func(*executortest.Process) int { return 0 }
	m.runner.Handle("/opt/tool", ok)
	m.runner.Handle("any", ok)

	for _, name := range []string{"alice", "bob", "expired", "forced", "narrow", "former"} {
		m.peer("red", name, keys.Client)
	}
	m.peer("blue", "foreign", keys.Client)
	m.peer("", "stranger", keys.Client)
	for name, tenant := range map[string]string{"red1": "red", "offline": "red", "blue1": "blue", "unlisted": "", "gone": "red"} {
		m.peer(tenant, name, keys.Executor)
	}
	// The owner of red1 would let foreign and stranger in; the relay does not bring them there.
	m.serve(
		"red1", line{"", "alice"}, line{"expires=2001-01-01", "expired"}, line{`command="/opt/tool a"`, "forced"},
		line{"sandbox<=read-only", "narrow"}, line{"", "foreign"}, line{"", "stranger"},
	)
	m.serve("blue1", line{"", "alice"}, line{"", "foreign"})
	m.serve("gone")
	if got := m.register("unlisted"); got != wire.CodeUnauthorized {
		t.Errorf("an executor that nobody listed gets %v", got)
	}
	if got := m.register("red1"); got != wire.CodeDuplicate {
		t.Errorf("a second machine with the key of one that is alive gets %v", got)
	}
	former := m.client("former")
	if got := m.try(former, "gone", "any", wire.SandboxReadOnly); got != "unauthorized" {
		t.Errorf("before its removal the former client got %q, want the executor's refusal", got)
	}
	m.relay.Remove(m.keys["gone"].Public())
	m.relay.Remove(m.keys["former"].Public())

	const none = "" // the relay does not admit it
	for _, row := range []struct {
		who, sees                   string
		red1, offline, blue1, ghost string // dial and run "any"
		forced                      string // run "tool a" at red1
	}{
		{"alice", "offline red1", "full-access", "unreachable", "unreachable", "unreachable", "command_not_found"},
		{"bob", "offline red1", "unauthorized", "unreachable", "unreachable", "unreachable", "unauthorized"},
		{"expired", "offline red1", "unauthorized", "unreachable", "unreachable", "unreachable", "unauthorized"},
		{"forced", "offline red1", "policy", "unreachable", "unreachable", "unreachable", "full-access"},
		{"narrow", "offline red1", "read-only", "unreachable", "unreachable", "unreachable", "command_not_found"},
		{"foreign", "blue1", "unreachable", "unreachable", "full-access", "unreachable", "unreachable"},
		{"stranger", none, "unauthorized", "unauthorized", "unauthorized", "unauthorized", "unauthorized"},
		{"former", none, "unauthorized", "unauthorized", "unauthorized", "unauthorized", "unauthorized"},
	} {
		c := m.client(row.who)
		if listed, err := c.Executors(t.Context()); row.sees == none {
			if wire.CodeOf(err) != wire.CodeUnauthorized {
				t.Errorf("%s lists %v, %v, want a refusal", row.who, listed, err)
			}
		} else if got := m.names(listed); got != row.sees || err != nil {
			t.Errorf("%s sees %q, %v, want %q", row.who, got, err, row.sees)
		}
		for _, cell := range []struct{ executor, argv, want string }{
			{"red1", "any", row.red1},
			{"offline", "any", row.offline},
			{"blue1", "any", row.blue1},
			{"unlisted", "any", row.ghost},
			{"gone", "any", row.ghost},
			{"red1", "tool a", row.forced},
		} {
			if got := m.try(c, cell.executor, cell.argv, wire.SandboxFullAccess); got != cell.want {
				t.Errorf("%s runs %q at %s: %s, want %s", row.who, cell.argv, cell.executor, got, cell.want)
			}
		}
	}
}

// names are the names by which the test knows executors, in order.
func (m *matrix) names(listed []client.ExecutorEntry) string {
	var names []string
	for _, e := range listed {
		for name, key := range m.keys {
			if key.Public() == e.Key {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}
