package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
)

// home is the client's folder: its key, the executors that it trusts, and the join tokens that it
// waits for (enrolment.go).
type home struct{ path string }

// The files in a home.
const (
	keyFile      = "client.key"
	knownFile    = "known_executors"
	pairingsFile = "pairings"
)

// findHome is POSTERN_HOME, else the configuration folder of the platform (XDG_CONFIG_HOME).
func findHome() (home, error) {
	if p := os.Getenv("POSTERN_HOME"); p != "" {
		return home{p}, nil
	}
	config, err := os.UserConfigDir()
	if err != nil {
		return home{}, fmt.Errorf("no folder for client.key and known_executors: set POSTERN_HOME (%w)", err)
	}
	return home{filepath.Join(config, "postern")}, nil
}

func (h home) join(name string) string { return filepath.Join(h.path, name) }

// connect finds an executor by its alias and returns its backend. Nothing is sent yet, unless the
// alias is not known and may be that of an executor which has joined since. What
// is to be different from a plain client, tune changes.
func (h home) connect(alias string, tune ...func(*client.Config)) (*client.Client, *client.Remote, error) {
	e, err := h.find(alias)
	if err != nil {
		return nil, nil, err
	}
	c, err := h.open(e.Relay, tune...)
	if err != nil {
		return nil, nil, err
	}
	return c, c.Executor(e.Key), nil
}

// find is the executor with an alias.
func (h home) find(alias string) (keys.KnownExecutor, error) {
	known, err := h.known()
	if err != nil {
		return keys.KnownExecutor{}, err
	}
	if e, ok := known.Lookup(alias); ok {
		return e, nil
	}
	waiting, learnt := h.learnAll()
	if known, err = h.known(); err != nil {
		return keys.KnownExecutor{}, err
	}
	if e, ok := known.Lookup(alias); ok {
		return e, nil
	}
	if waiting {
		err = errors.Join(learnt...)
		if err == nil {
			err = errors.New("no executor of this name has joined with a token of this client yet (postern executors)")
		}
		return keys.KnownExecutor{}, fmt.Errorf("unknown executor %q: %w", alias, err)
	}
	return keys.KnownExecutor{}, fmt.Errorf("unknown executor %q: %s", alias, h.suggest(known))
}

// open is a client of a relay, which connects when it is used. It keeps known_executors up to date
// when keys are replaced.
func (h home) open(relay keys.RelayURL, tune ...func(*client.Config)) (*client.Client, error) {
	key, err := keys.ReadFile(h.join(keyFile), keys.Client)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no client key: make one with: postern keygen --kind client --out %s", h.join(keyFile))
	}
	if err != nil {
		return nil, err
	}
	cfg := client.Config{
		Key: key, Relay: relay, Software: software(),
		ExecutorKeyReplaced: h.replaceKey, RelayKeyReplaced: h.replaceKey,
	}
	for _, change := range tune {
		change(&cfg)
	}
	return client.New(cfg)
}

// onExecutor connects to an executor and does something there.
func onExecutor(alias string, do func(client.Environment) error, tune ...func(*client.Config)) error {
	endCollector.use()
	if t := (terminal{file: os.Stdin}); !t.exists() { // whoever waits for a key keeps a processor for a moment after each
		shareProcessors()
	}
	h, err := findHome()
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	agent, end := h.useAgent(alias)
	c, backend, err := h.connect(alias, append(tune, agent)...)
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	defer end()
	defer c.Close()
	return do(client.Environment{Name: alias, Backend: backend})
}

// onRelay asks the relay that a flag names, or else the only one that this client uses, something.
func onRelay(flag string, do func(context.Context, *client.Client, keys.PublicKey) error) error {
	h, err := findHome()
	if err != nil {
		return failed(err)
	}
	relay, err := h.relay(flag)
	if err != nil {
		return err
	}
	return h.onRelay(relay, do)
}

// onRelay asks a relay something, for learnTimeout at most. The error names the relay.
func (h home) onRelay(relay keys.RelayURL, do func(context.Context, *client.Client, keys.PublicKey) error) error {
	c, err := h.open(relay)
	if err != nil {
		return failed(err)
	}
	defer c.Close()
	key, err := keys.ReadFile(h.join(keyFile), keys.Client)
	if err != nil {
		return failed(err)
	}
	return underSignals(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, learnTimeout)
		defer cancel()
		if err := do(ctx, c, key.Public()); err != nil {
			return failf(exitFailed, "relay %s: %v", relay.Address(), err)
		}
		return nil
	})
}

func (h home) known() (*keys.KnownExecutors, error) {
	f, err := os.Open(h.join(knownFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return keys.ParseKnownExecutors(f.Name(), f)
}

func (h home) suggest(known *keys.KnownExecutors) string {
	var names []string
	for _, e := range known.All() {
		names = append(names, e.Alias)
	}
	slices.Sort(names)
	add := fmt.Sprintf("add a line 'ALIAS exec_... postern://HOST:PORT#relay_...' to %s, or make a join token with: postern token new", h.join(knownFile))
	if len(names) == 0 {
		return "none is known; " + add
	}
	return fmt.Sprintf("known are %s; else %s", strings.Join(names[:min(len(names), 20)], ", "), add)
}
