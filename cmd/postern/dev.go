package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// devOptions are what `postern dev` and `postern demo` need.
type devOptions struct {
	state      string
	listen     string
	workspaces []string
	max        wire.SandboxMode
	network    executor.Network
	permit     []netip.Prefix
	watched    observation // of the relay
	log        *slog.Logger
}

const devName = "dev"

// devNode is a relay and an executor named dev in one process, which a client with
// POSTERN_HOME=DIR/client may use.
type devNode struct {
	home     home
	relay    *relayNode
	executor *executorNode
	ready    chan struct{} // closed when the executor is registered
}

func openDev(o devOptions) (_ *devNode, err error) {
	dir, err := filepath.Abs(o.state)
	if err != nil {
		return nil, err
	}
	for _, d := range []string{dir, filepath.Join(dir, "relay"), filepath.Join(dir, "executor"), filepath.Join(dir, "client")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return nil, fmt.Errorf("state folder: %w", err)
		}
	}
	n := &devNode{home: home{filepath.Join(dir, "client")}, ready: make(chan struct{})}
	defer func() {
		if err != nil {
			n.close()
		}
	}()
	executor, err := introduce(dir)
	if err != nil {
		return nil, err
	}
	if n.relay, err = openRelay(relayOptions{state: filepath.Join(dir, "relay"), listen: o.listen, watched: o.watched, log: o.log}); err != nil {
		return nil, err
	}
	// The port may be another one each time, so the entry is replaced, not added.
	known := fmt.Sprintf("%s %s %s\n", devName, executor, n.relay.url)
	if err := os.WriteFile(n.home.join("known_executors"), []byte(known), 0o600); err != nil {
		return nil, err
	}
	if len(o.workspaces) == 0 {
		w := filepath.Join(dir, "workspace")
		if err := os.MkdirAll(w, 0o755); err != nil {
			return nil, err
		}
		o.workspaces = []string{w}
	}
	var once sync.Once
	n.executor, err = openExecutor(context.Background(), executorOptions{
		relay: n.relay.url, name: devName, state: filepath.Join(dir, "executor"), workspaces: o.workspaces,
		max: o.max, network: o.network, permit: o.permit, hide: []string{filepath.Join(dir, "relay"), n.home.path},
		registered: func(wire.HopWelcome) { once.Do(func() { close(n.ready) }) },
		log:        o.log, environment: os.Environ(),
	})
	return n, err
}

// introduce makes the keys, and client and executor known to those who must let them in.
func introduce(dir string) (executor keys.PublicKey, err error) {
	e, _, err := keys.LoadOrGenerate(filepath.Join(dir, "executor", "executor.key"), keys.Executor)
	if err != nil {
		return executor, err
	}
	c, _, err := keys.LoadOrGenerate(filepath.Join(dir, "client", "client.key"), keys.Client)
	if err != nil {
		return executor, err
	}
	tenants := filepath.Join(dir, "relay", roster.ListedFile)
	return e.Public(), errors.Join(
		keys.AddTenant(tenants, keys.Tenant{Name: devName}),
		keys.AddMember(tenants, devName, keys.Member{Key: c.Public(), Name: devName}),
		keys.AddMember(tenants, devName, keys.Member{Key: e.Public(), Name: devName}),
		keys.AddAuthorizedClient(filepath.Join(dir, "executor", "authorized_clients"), c.Public(), devName),
	)
}

// run serves until ctx ends: first the executor goes, then the relay that it says goodbye through.
func (n *devNode) run(ctx context.Context) error {
	executing, stop := context.WithCancel(ctx)
	defer stop()
	relaying, end := context.WithCancel(context.WithoutCancel(ctx))
	var relayErr error
	var relay sync.WaitGroup
	relay.Go(func() {
		relayErr = n.relay.run(relaying, nil)
		stop()
	})
	err := n.executor.run(executing, nil)
	end()
	relay.Wait()
	return errors.Join(relayErr, err)
}

func (n *devNode) close() {
	if n.executor != nil {
		n.executor.close()
	}
	if n.relay != nil {
		n.relay.close()
	}
}
