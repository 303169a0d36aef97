package main

import (
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

// home is the client's folder: client.key and known_executors.
type home struct{ path string }

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

// connect finds an executor by its alias and returns its backend. Nothing is sent yet. What
// is to be different from a plain client, tune changes.
func (h home) connect(alias string, tune ...func(*client.Config)) (*client.Client, *client.Remote, error) {
	known, err := h.known()
	if err != nil {
		return nil, nil, err
	}
	e, ok := known.Lookup(alias)
	if !ok {
		return nil, nil, fmt.Errorf("unknown executor %q: %s", alias, h.suggest(known))
	}
	key, err := keys.ReadFile(h.join("client.key"), keys.Client)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("no client key: make one with: postern keygen --kind client --out %s", h.join("client.key"))
	}
	if err != nil {
		return nil, nil, err
	}
	cfg := client.Config{Key: key, Relay: e.Relay, Software: software()}
	for _, change := range tune {
		change(&cfg)
	}
	c, err := client.New(cfg)
	if err != nil {
		return nil, nil, err
	}
	return c, c.Executor(e.Key), nil
}

// onExecutor connects to an executor and does something there.
func onExecutor(alias string, do func(client.Environment) error, tune ...func(*client.Config)) error {
	h, err := findHome()
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	c, backend, err := h.connect(alias, tune...)
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	defer c.Close()
	return do(client.Environment{Name: alias, Backend: backend})
}

func (h home) known() (*keys.KnownExecutors, error) {
	f, err := os.Open(h.join("known_executors"))
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
	add := fmt.Sprintf("add a line 'ALIAS exec_... postern://HOST:PORT#relay_...' to %s", h.join("known_executors"))
	if len(names) == 0 {
		return "none is known; " + add
	}
	return fmt.Sprintf("known are %s; else %s", strings.Join(names[:min(len(names), 20)], ", "), add)
}
