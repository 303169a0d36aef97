package main

import (
	"context"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// The suite runs on the local backend, on a remote one over an in-memory stream, on a remote one
// through a real relay on loopback, and on one that uses an agent in front of that. No row may be missing anywhere.
func TestEveryBackendConformsToTheSameSuite(t *testing.T) {
	rows := make(map[string]int)
	t.Run("local", func(t *testing.T) {
		rows["local"] = wiretest.TestBackend(t, func(t *testing.T) (wire.ExecBackend, wiretest.BackendOptions) {
			b, w := newBackend(t)
			return b, wiretest.BackendOptions{Workspace: w, Dir: w}
		})
	})
	t.Run("memory", func(t *testing.T) {
		rows["memory"] = wiretest.TestBackend(t, func(t *testing.T) (wire.ExecBackend, wiretest.BackendOptions) {
			b, w := newBackend(t)
			return overMemory(t, b), wiretest.BackendOptions{Workspace: w, Dir: w}
		})
	})
	t.Run("relay", func(t *testing.T) {
		rows["relay"] = wiretest.TestBackend(t, func(t *testing.T) (wire.ExecBackend, wiretest.BackendOptions) {
			b, w := newBackend(t)
			return throughRelay(t, b), wiretest.BackendOptions{Workspace: w, Dir: w}
		})
	})
	rows["agent"] = rows["local"] // where there are no agents
	t.Run("agent", func(t *testing.T) {
		if runtime.GOOS != "linux" {
			t.Skip("there are no agents on this system")
		}
		rows["agent"] = wiretest.TestBackend(t, func(t *testing.T) (wire.ExecBackend, wiretest.BackendOptions) {
			b, w := newBackend(t)
			return throughAgent(t, b), wiretest.BackendOptions{Workspace: w, Dir: w}
		})
	})
	if rows["local"] == 0 || rows["memory"] != rows["local"] || rows["relay"] != rows["local"] || rows["agent"] != rows["local"] {
		t.Errorf("rows that passed: %v, want the same number everywhere", rows)
	}
}

// newBackend runs commands in the product's sandbox, in one workspace.
func newBackend(t *testing.T) (*executor.Local, string) {
	t.Helper()
	workspace := t.TempDir() // first, so that it goes when no warm sandbox holds it any more
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b, err := executor.NewLocal(executor.LocalConfig{
		Runner: executor.NewSandboxRunner(l), Workspaces: []string{workspace},
		Environ: append(os.Environ(), "SUITE_MARK=kept", "SUITE_EXCLUDED=x", "POSTERN_SECRET=x"),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b, workspace
}

func newKey(t *testing.T, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// admitting is a list of clients as the executor reads it.
func admitting(t *testing.T, clients ...keys.PublicKey) func() *keys.AuthorizedClients {
	t.Helper()
	var text strings.Builder
	for _, c := range clients {
		text.WriteString(c.String() + " test\n")
	}
	list, err := keys.ParseAuthorizedClients("test", strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return func() *keys.AuthorizedClients { return list }
}

// overMemory connects client and executor by in-memory streams, with nothing between.
func overMemory(t *testing.T, b *executor.Local) *client.Remote {
	t.Helper()
	me, it := newKey(t, keys.Client), newKey(t, keys.Executor)
	e, err := executor.New(executor.Config{Key: it, Clients: admitting(t, me.Public()), Backend: b})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var circuits sync.WaitGroup
	r := client.NewRemote(client.RemoteConfig{
		Key: me, Executor: it.Public(),
		OpenCircuit: func(context.Context) (wire.Stream, error) {
			ours, theirs := wiretest.Pipe()
			circuits.Go(func() { e.ServeCircuit(ctx, theirs, me.Public().Raw()) })
			return ours, nil
		},
	})
	t.Cleanup(func() {
		r.Close()
		cancel()
		circuits.Wait()
	})
	return r
}

// throughRelay connects them through a relay on loopback.
func throughRelay(t *testing.T, b *executor.Local) *client.Remote {
	t.Helper()
	it := newRegistered(t, b)
	c, err := client.New(client.Config{Key: it.client, Relay: it.url})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Executor(it.executor)
}

// registered is an executor at a relay, and a client that both admit.
type registered struct {
	relay    *relaytest.Relay
	url      keys.RelayURL
	client   *keys.PrivateKey
	executor keys.PublicKey
}

func newRegistered(t *testing.T, b *executor.Local) registered {
	t.Helper()
	r := relaytest.Start(t)
	me, it := r.NewPeer(keys.Client), r.NewPeer(keys.Executor)
	url, err := keys.ParseRelayURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	there := make(chan struct{}, 8)
	e, err := executor.New(executor.Config{
		Key: it, Name: "it", Relay: url.Key, Clients: admitting(t, me.Public()), Backend: b,
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return quicconn.Dial(ctx, url.Address(), quicconn.Options{Role: wire.RoleExecutor})
		},
		Registered: func(wire.HopWelcome) {
			select {
			case there <- struct{}{}:
			default:
			}
		},
		Backoff: quicconn.Backoff{Base: 20 * time.Millisecond, Settled: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	select {
	case <-there:
	case <-t.Context().Done():
		t.Fatal("the executor does not get registered")
	}
	return registered{r, url, me, it.Public()}
}
