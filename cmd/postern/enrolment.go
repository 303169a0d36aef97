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
	"github.com/postern-relay/postern/wire"
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
	problems, err = h.believe(relay, listed)
	return listed, problems, err
}

// believe pins what the relay's list proves. Any number of processes may do so at the same moment: a use is counted before the
// executor is trusted, and a pairing goes when all that it has counted are trusted, so that whoever finds a step done, or
// left undone by a process that died, goes on from there. Nothing that another process added is ever removed.
func (h home) believe(relay keys.RelayURL, listed []client.ExecutorEntry) (problems []error, err error) {
	pairings, err := h.pairings()
	if err != nil {
		return nil, err
	}
	for _, p := range pairings {
		if p.Relay != relay {
			continue
		}
		for _, e := range listed {
			if e.Token != p.ID {
				continue
			}
			if p, err = h.pin(p, e); err != nil {
				problems = append(problems, fmt.Errorf("executor %s is not trusted: %w", e.Name, err))
			}
		}
		over, err := h.over(p, listed)
		if err == nil && over {
			err = keys.RemovePairing(h.join(pairingsFile), p.ID)
		}
		if err != nil && !errors.Is(err, keys.ErrNotListed) { // else another process was faster
			problems = append(problems, err)
		}
	}
	return problems, nil
}

// pin trusts one executor, if its announcement proves that it has had the token.
func (h home) pin(p keys.Pairing, e client.ExecutorEntry) (keys.Pairing, error) {
	known, err := h.known()
	if err != nil {
		return p, err
	}
	counted := slices.Contains(p.Pinned, e.Key)
	if counted && settled(known, p, e) {
		return p, nil
	}
	if err := p.Verify(e.Key, e.Name, e.MAC); err != nil {
		return p, err
	}
	if !counted {
		if err := freeAlias(known, e.Name, e.Key, p.Relay); err != nil {
			return p, err // before the use is counted: it is still there when the name is free
		}
		used := p
		used.Pinned = append(slices.Clone(p.Pinned), e.Key)
		err := keys.UpdatePairing(h.join(pairingsFile), used)
		if errors.Is(err, keys.ErrNotListed) {
			return p, h.withdrawn(p, e)
		}
		if err != nil {
			return p, err
		}
		p = used
	}
	return p, keys.AddKnownExecutor(h.join(knownFile), keys.KnownExecutor{Alias: e.Name, Key: e.Key, Relay: p.Relay})
}

// settled reports whether nothing is left to do for an executor whose use is counted: it is known, maybe under another name
// that the user gave it, or its name was given to another key since, as its successor's. One that is in neither way in the file
// is added again, for the process that counted it may have died before. What the user removes by postern known rm
// does not come back, for that removes the pairing too.
func settled(known *keys.KnownExecutors, p keys.Pairing, e client.ExecutorEntry) bool {
	named, ok := known.Lookup(e.Name)
	return ok && named.Relay == p.Relay || has(known, e.Key, p.Relay)
}

// has reports whether a key of this relay is known, under whatever name.
func has(known *keys.KnownExecutors, key keys.PublicKey, relay keys.RelayURL) bool {
	return slices.ContainsFunc(known.All(), func(k keys.KnownExecutor) bool { return k.Key == key && k.Relay == relay })
}

// freeAlias refuses an alias that stands for something else: only a person changes whom a name means.
func freeAlias(known *keys.KnownExecutors, alias string, key keys.PublicKey, relay keys.RelayURL) error {
	old, taken := known.Lookup(alias)
	switch {
	case taken && old.Key != key:
		return fmt.Errorf("alias %q already stands for another key, %s: run postern known rm %s if the new key is right", alias, old.Key, alias)
	case taken && old.Relay != relay:
		return fmt.Errorf("alias %q already uses the relay %s: run postern known rm %s if the new one is right", alias, old.Relay, alias)
	}
	return nil
}

// withdrawn is what it means that the pairing is gone: another process has trusted the executor and was done with the
// pairing, or the user has withdrawn the token.
func (h home) withdrawn(p keys.Pairing, e client.ExecutorEntry) error {
	known, err := h.known()
	if err != nil {
		return err
	}
	if k, ok := known.Lookup(e.Name); ok && k.Key == e.Key {
		return nil
	}
	return fmt.Errorf("token %s was withdrawn or used up at this moment: if the machine is yours, make another one with: postern token new", p.ID)
}

// over reports whether a pairing has nothing to wait for: it is long expired, or all its uses are counted and settled. An
// executor that is counted and neither known nor in the relay's list may be one that another process is about to trust, so
// it keeps its pairing.
func (h home) over(p keys.Pairing, listed []client.ExecutorEntry) (bool, error) {
	if time.Since(p.Expires) > pairingGrace {
		return true, nil
	}
	if len(p.Pinned) < p.Uses {
		return false, nil
	}
	known, err := h.known()
	if err != nil {
		return false, err
	}
	for _, key := range p.Pinned {
		done := has(known, key, p.Relay) || slices.ContainsFunc(listed, func(e client.ExecutorEntry) bool {
			return e.Token == p.ID && e.Key == key && settled(known, p, e)
		})
		if !done {
			return false, nil
		}
	}
	return true, nil
}

// withdraw takes tokens back: here before at the relay, since one that does not answer, or lies, must not decide for whom
// this client waits.
func (h home) withdraw(n *notes, flag string, ids []keys.TokenID) error {
	only, onlyErr := h.relay(flag) // before the pairings go, which may be all that names it
	if flag != "" && onlyErr != nil {
		return onlyErr
	}
	pairings, err := h.pairings()
	if err != nil {
		return failed(err)
	}
	made := make(map[keys.TokenID]keys.RelayURL) // by this client, and not forgotten yet
	for _, p := range pairings {
		made[p.ID] = p.Relay
	}
	for _, id := range ids {
		if err := keys.RemovePairing(h.join(pairingsFile), id); err != nil && !errors.Is(err, keys.ErrNotListed) {
			return failed(err)
		}
	}
	for _, id := range ids {
		relay, err := only, onlyErr
		of, own := made[id]
		if own && flag == "" {
			relay, err = of, nil
		}
		if err != nil {
			return err
		}
		err = h.onRelay(relay, func(ctx context.Context, c *client.Client, _ keys.PublicKey) error {
			err := c.RemoveToken(ctx, wire.ID(id))
			switch {
			case err == nil:
				return nil
			case wire.CodeOf(err) != wire.CodeNotFound:
				return fmt.Errorf("token %s is forgotten here, but at the relay it may still be good: %w", id, err)
			case own && of != relay:
				return fmt.Errorf("token %s is forgotten here, but it was made for the relay %s: withdraw it there", id, of)
			case !own:
				n.say("token %s: neither this client nor the relay knows it", id)
			}
			return nil // it was withdrawn already, or is long expired
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// takeBack withdraws a token that could not be handed out: a part of it may be somewhere. The error is why it was not, and what
// is left to do.
func takeBack(ctx context.Context, c *client.Client, id keys.TokenID, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), learnTimeout) // an interrupt may be the reason
	defer cancel()
	if err := c.RemoveToken(ctx, wire.ID(id)); err != nil && wire.CodeOf(err) != wire.CodeNotFound {
		return fmt.Errorf("%w; the relay may still take it, withdraw it with: postern token rm %s", why, id)
	}
	return why
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
			if err := keys.UpdatePairing(h.join(pairingsFile), p); !errors.Is(err, keys.ErrNotListed) { // else another process was done with it
				listErr = errors.Join(listErr, err)
			}
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
