package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// joining is how an executor comes to a relay by a token: read it, be admitted, write down who
// may run commands here and which relay it is, remove the token. Each step can be repeated after a
// crash: the relay knows the key that has used the token. Only afterwards does the executor serve.
type joining struct {
	path string // of the token's file; "-": standard input
	name string // wanted; empty: what the token says, with the machine's name for its *
	std  stdio
	log  *slog.Logger
}

// run joins unless that has been done, and returns what is to be known of the relay.
func (j joining) run(ctx context.Context, state *stateDir, key *keys.PrivateKey, clients string) (relayFile, error) {
	saved, err := readRelayFile(state.join(relayFileName))
	if err != nil {
		return saved, err
	}
	if j.path == "" {
		return saved, nil
	}
	token, remove, err := j.read(saved.relay != keys.RelayURL{})
	if err != nil || token == nil { // nil: joined long ago, and the token is gone as it should be
		return saved, err
	}
	if saved.token != token.ID {
		if saved, err = j.join(ctx, token, key); err != nil {
			return saved, err
		}
		for _, c := range token.Clients {
			if err := addClient(clients, c); err != nil {
				return saved, err
			}
		}
		if err := saved.write(state.join(relayFileName)); err != nil {
			return saved, fmt.Errorf("this machine has joined, but that could not be written down: %w", err)
		}
	}
	if err := remove(); err != nil {
		return saved, fmt.Errorf("this machine has joined, but its token could not be removed, and no command runs before: %w", err)
	}
	return saved, nil
}

// addClient lists a client, unless its key is there with whatever name and options.
func addClient(path string, c keys.TokenClient) error {
	f, err := os.Open(path)
	if err == nil {
		var listed *keys.AuthorizedClients
		listed, err = keys.ParseAuthorizedClients(path, f)
		f.Close()
		if err != nil {
			return err
		}
		if _, there := listed.Lookup(c.Key); there {
			return nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return keys.AddAuthorizedClient(path, c.Key, c.Name)
}

// read is the token and how to get rid of it.
func (j joining) read(joined bool) (*keys.JoinToken, func() error, error) {
	nothing := func() error { return nil }
	if j.path == "-" {
		if term.IsTerminal(int(j.std.in.Fd())) {
			fmt.Fprint(j.std.err, "postern: paste the join token: ")
			line, err := bufio.NewReader(io.LimitReader(j.std.in, 16<<10)).ReadString('\n')
			if err != nil && line == "" {
				return nil, nil, fmt.Errorf("--join -: nothing was pasted: %w", err)
			}
			token, err := keys.ParseJoinToken(line)
			return token, nothing, err
		}
		content, err := io.ReadAll(io.LimitReader(j.std.in, 32<<10))
		if err != nil {
			return nil, nil, fmt.Errorf("--join -: %w", err)
		}
		if joined && strings.TrimSpace(string(content)) == "" {
			return nil, nil, nil
		}
		token, err := keys.ReadJoinToken(strings.NewReader(string(content)))
		return token, nothing, err
	}
	f, err := os.Open(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		if joined {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("--join: this executor has not joined yet, and there is no token: %w", err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("--join: %w", err)
	}
	defer f.Close()
	token, err := keys.ReadJoinToken(f)
	if err != nil {
		return nil, nil, fmt.Errorf("--join %s: %w", j.path, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !info.Mode().IsRegular() { // a pipe has nothing left
		return token, nothing, nil
	}
	if info.Mode().Perm()&0o077 != 0 {
		j.log.Warn("the token's file can be read by others than its owner: whoever reads it first can join in this machine's place", "file", j.path)
	}
	return token, func() error { return removeToken(j.path) }, nil
}

// removeToken removes a file, also where its name is a link to it.
func removeToken(path string) error {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	if err := os.Remove(real); err != nil || filepath.Clean(path) == real {
		return err
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// join is the relay's part. It waits for a network and a relay that are not there yet, and ends with
// a refusal that only people can do something about.
func (j joining) join(ctx context.Context, token *keys.JoinToken, key *keys.PrivateKey) (relayFile, error) {
	name := j.name
	if name == "" {
		var err error
		if name, err = nameFor(token.Pattern); err != nil {
			return relayFile{}, err
		}
	}
	if !keys.MatchName(token.Pattern, name) {
		return relayFile{}, fmt.Errorf("--name %s: the join token is for names like %s", name, token.Pattern)
	}
	cfg := executor.JoinConfig{
		Key: key, Name: name, Token: token, Software: software(),
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return quicconn.Dial(ctx, token.Relay.Address(), quicconn.Options{Role: wire.RoleExecutor})
		},
	}
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		welcome, err := executor.Join(ctx, cfg)
		if err == nil {
			j.log.Info("joined", "relay", token.Relay.Address(), "tenant", welcome.Tenant, "name", welcome.Name)
			return relayFile{relay: token.Relay, name: name, token: token.ID}, nil
		}
		again, after := executor.WorthAnotherTry(err)
		if ctx.Err() != nil || !again {
			return relayFile{}, fmt.Errorf("join the relay %s: %w", token.Relay.Address(), err)
		}
		pause := max(after, wait/2+rand.N(wait/2))
		j.log.Warn("not joined yet", "err", err, "retry_in", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return relayFile{}, fmt.Errorf("join the relay %s: %w", token.Relay.Address(), err)
		}
	}
}

// nameFor is the name that a pattern gives this machine.
func nameFor(pattern string) (string, error) {
	head, tail, open := strings.Cut(pattern, "*")
	if !open {
		return pattern, nil
	}
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("--name is missing, and this machine has none: %w", err)
	}
	host, _, _ = strings.Cut(host, ".")
	host = strings.Map(func(r rune) rune {
		if r < 0x80 && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return r
		}
		return -1
	}, host)
	if name := head + host + tail; keys.MatchName(pattern, name) {
		return name, nil
	}
	return "", fmt.Errorf("--name is missing, and this machine's name %q is no name for an executor", host)
}
