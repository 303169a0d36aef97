package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
)

// An executor that joins with a token of this client announces its key, under the token's pairing
// secret, through the relay. learn fetches what was announced and pins what is proven; nothing else
// from the network ever gets into known_executors, but for the successors of keys in there.

// pairingGrace is how long after its expiry a token's announcement is still believed: the machine
// may have joined in time, and this one been asleep.
const pairingGrace = 7 * 24 * time.Hour

// learnTimeout bounds one question to a relay.
const learnTimeout = 10 * time.Second

// learn pins the executors of this relay that joined with tokens of this client, and returns all
// that the relay lists, with one error for each that could not be pinned.
func (h home) learn(ctx context.Context, c *client.Client, relay keys.RelayURL) (listed []client.ExecutorEntry, problems []error, err error) {
	if listed, err = c.Executors(ctx); err != nil {
		return nil, nil, fmt.Errorf("relay %s: %w", relay.Address(), err)
	}
	pairings, err := h.pairings()
	if err != nil {
		return listed, nil, err
	}
	for _, p := range pairings {
		if p.Relay != relay {
			continue
		}
		for _, e := range listed {
			if e.Token != p.ID || slices.Contains(p.Pinned, e.Key) {
				continue
			}
			if p, err = h.pin(p, e); err != nil {
				problems = append(problems, fmt.Errorf("executor %s is not trusted: %w", e.Name, err))
			}
		}
		if len(p.Pinned) >= p.Uses || time.Since(p.Expires) > pairingGrace {
			if err := keys.RemovePairing(h.join(pairingsFile), p.ID); err != nil {
				problems = append(problems, err)
			}
		}
	}
	return listed, problems, nil
}

// pin trusts one executor, if its announcement proves that it has had the token.
func (h home) pin(p keys.Pairing, e client.ExecutorEntry) (keys.Pairing, error) {
	if err := p.Verify(e.Key, e.Name, e.MAC); err != nil {
		return p, err
	}
	if err := keys.AddKnownExecutor(h.join(knownFile), keys.KnownExecutor{Alias: e.Name, Key: e.Key, Relay: p.Relay}); err != nil {
		return p, err
	}
	used := p
	used.Pinned = append(slices.Clone(p.Pinned), e.Key)
	if err := keys.UpdatePairing(h.join(pairingsFile), used); err != nil { // another process was faster with the last use
		return p, errors.Join(err, keys.RemoveKnownExecutor(h.join(knownFile), e.Name))
	}
	return used, nil
}

// pairings are the tokens that this client waits for.
func (h home) pairings() ([]keys.Pairing, error) {
	all, err := keys.ReadPairings(h.join(pairingsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return all.All(), nil
}

// learnAll asks every relay for which a token is outstanding. waiting reports whether there is one.
func (h home) learnAll() (waiting bool, problems []error) {
	pairings, err := h.pairings()
	if err != nil {
		return true, []error{err}
	}
	var asked []keys.RelayURL
	for _, p := range pairings {
		if slices.Contains(asked, p.Relay) {
			continue
		}
		asked = append(asked, p.Relay)
		ctx, cancel := context.WithTimeout(context.Background(), learnTimeout)
		c, err := h.open(p.Relay)
		if err == nil {
			var refused []error
			_, refused, err = h.learn(ctx, c, p.Relay)
			problems = append(problems, refused...)
			c.Close()
		}
		cancel()
		if err != nil {
			problems = append(problems, err)
		}
	}
	return len(asked) > 0, problems
}

// relays are those that this client uses, in the order of its files.
func (h home) relays() ([]keys.RelayURL, error) {
	known, err := h.known()
	if err != nil {
		return nil, err
	}
	pairings, err := h.pairings()
	if err != nil {
		return nil, err
	}
	var relays []keys.RelayURL
	add := func(r keys.RelayURL) {
		if !slices.Contains(relays, r) {
			relays = append(relays, r)
		}
	}
	for _, e := range known.All() {
		add(e.Relay)
	}
	for _, p := range pairings {
		add(p.Relay)
	}
	return relays, nil
}

// relay is what --relay says, or else the only one that this client uses.
func (h home) relay(flag string) (keys.RelayURL, error) {
	if flag != "" {
		r, err := keys.ParseRelayURL(flag)
		if err != nil {
			return r, fmt.Errorf("--relay: %w", err)
		}
		return r, nil
	}
	relays, err := h.relays()
	switch {
	case err != nil:
		return keys.RelayURL{}, err
	case len(relays) == 0:
		return keys.RelayURL{}, errors.New("--relay is missing: want the line postern://HOST:PORT#relay_... that the relay prints")
	case len(relays) > 1:
		return keys.RelayURL{}, fmt.Errorf("--relay is missing, and this client uses %d relays: name one", len(relays))
	}
	return relays[0], nil
}

// putKey puts a key in the place of another one, and returns in how many lines.
func (h home) putKey(old, next keys.PublicKey) (changed int, err error) {
	changed, err = keys.ReplaceKnownKey(h.join(knownFile), old, next)
	pairings, listErr := h.pairings()
	for _, p := range pairings {
		if p.Relay.Key == old {
			changed++
			p.Relay.Key = next
			listErr = errors.Join(listErr, keys.UpdatePairing(h.join(pairingsFile), p))
		}
	}
	return changed, errors.Join(err, listErr)
}

// replaceKey is putKey for a proven successor of a pinned key.
func (h home) replaceKey(old, next keys.PublicKey) {
	if _, err := h.putKey(old, next); err != nil {
		fmt.Fprintf(os.Stderr, "postern: %s\n", oneLine(fmt.Sprintf("a key is going to be replaced, put %s in place of %s in your files: %v", next, old, err)))
	}
}
