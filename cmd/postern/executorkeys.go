package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// identities are the executor's registrations: one for its key, and one more for the next key while that is to replace it. All
// have one backend.
type identities struct {
	ring   *keyring
	state  *stateDir
	log    *slog.Logger
	config func(*keys.PrivateKey) executor.Config // all but what concerns the two keys

	mu      sync.Mutex
	running map[keys.PublicKey]*identity
}

type identity struct {
	*executor.Executor
	stop  context.CancelFunc
	ended chan struct{}
}

// open makes the registrations there should be at the start, without serving them.
func (ids *identities) open() error {
	ids.running = make(map[keys.PublicKey]*identity)
	current, _ := ids.ring.keys()
	_, err := ids.add(current)
	return err
}

func (ids *identities) add(key *keys.PrivateKey) (*identity, error) {
	cfg := ids.config(key)
	cfg.Next, cfg.Previous = ids.nextOf(key.Public()), ids.previousOf(key.Public())
	e, err := executor.New(cfg)
	if err != nil {
		return nil, err
	}
	id := &identity{Executor: e, ended: make(chan struct{})}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.running[key.Public()] = id
	return id, nil
}

// nextOf is what clients of a key are told will replace it.
func (ids *identities) nextOf(key keys.PublicKey) func() keys.PublicKey {
	return func() keys.PublicKey {
		current, next := ids.ring.keys()
		if next == nil || current.Public() != key || !ids.registered(next.Public()) {
			return keys.PublicKey{} // nobody could confirm it
		}
		return next.Public()
	}
}

// previousOf is what clients of a key are told it replaces.
func (ids *identities) previousOf(key keys.PublicKey) func() keys.PublicKey {
	return func() keys.PublicKey {
		current, next := ids.ring.keys()
		if next == nil || next.Public() != key {
			return keys.PublicKey{}
		}
		return current.Public()
	}
}

// each does something with all registrations.
func (ids *identities) each(do func(*executor.Executor)) {
	ids.mu.Lock()
	var all []*executor.Executor
	for _, id := range ids.running {
		all = append(all, id.Executor)
	}
	ids.mu.Unlock()
	for _, e := range all {
		do(e)
	}
}

// run serves the keys that there are until ctx ends, and follows their replacement.
func (ids *identities) run(ctx context.Context) {
	var serving sync.WaitGroup
	defer serving.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	serving.Go(func() {
		ids.ring.run(ctx, ids.log, func() {
			select {
			case changed <- struct{}{}:
			default:
			}
		})
	})
	start := func(id *identity) {
		own, stop := context.WithCancel(ctx)
		id.stop = stop
		serving.Go(func() {
			defer close(id.ended)
			if err := id.Run(own); err != nil && !errors.Is(err, context.Canceled) {
				ids.log.Error("executor ended", "err", err)
			}
		})
	}
	ids.mu.Lock()
	for _, id := range ids.running {
		start(id)
	}
	ids.mu.Unlock()
	serving.Go(func() { ids.count(ctx) })
	for {
		step, done := context.WithCancel(ctx)
		var working sync.WaitGroup
		working.Go(func() { ids.settle(step, start) })
		select {
		case <-changed:
		case <-ctx.Done():
		}
		done()
		working.Wait()
		if ctx.Err() != nil {
			return
		}
	}
}

// settle brings the registrations in line with the key files: it serves the next key once the relay admits it, and
// ends a replaced one.
func (ids *identities) settle(ctx context.Context, start func(*identity)) {
	current, next := ids.ring.keys()
	serving, err := ids.serve(current, start)
	if err != nil {
		ids.log.Error("the executor's key cannot be served", "err", err)
		return
	}
	ids.endReplaced(current, next)
	ids.tellRetired(ctx, serving)
	if next == nil {
		return
	}
	f, err := readRekeyFile(ids.state.join(rekeyFileName))
	if err != nil {
		ids.log.Error("the state of the key's replacement cannot be read", "err", err)
	}
	asked := func(ctx context.Context) bool {
		return ids.persist(ctx, "the relay does not admit the next key yet", func() error { return serving.Follow(ctx, next.Public()) })
	}
	if f.admitted == next.Public() {
		// The relay may have forgotten it since. But in a folder that was restored it may also be the only one that is admitted by now.
		trying, done := context.WithTimeout(ctx, renameTime)
		asked(trying)
		done()
	} else if !asked(ctx) {
		return
	}
	successor, err := ids.serve(next, start)
	if err != nil {
		ids.log.Error("the executor's next key cannot be served", "err", err)
		return
	}
	for admitted := false; ctx.Err() == nil; {
		round, done := context.WithTimeout(ctx, admissionCheck)
		here := successor.AwaitRegistration(round) == nil
		switch {
		case here && !admitted:
			if admitted = ids.setAdmitted(next.Public()); admitted {
				ids.log.Info("the executor's key is going to be replaced, and both are served", "next", next.Public().String())
			}
		case !here && ctx.Err() == nil && serving.Registered():
			// The relay has forgotten the next key, as one does that was restored from a copy: to finish would lock us out.
			ids.setAdmitted(keys.PublicKey{})
			admitted = false
			asked(ctx)
		}
		<-round.Done()
		done()
	}
}

// renameTime is how long the next key waits to be named once more by the current one, which has to be registered for that.
const renameTime = 10 * time.Second

// admissionCheck is how long the next key may be away from the relay, while the current one is there, before it is named anew. It is
// longer than an executor waits between two attempts.
const admissionCheck = 2 * time.Minute

// setAdmitted writes down which next key the relay admits, zero for none.
func (ids *identities) setAdmitted(next keys.PublicKey) bool {
	err := changeRekeyFile(ids.state.path, func(f *rekeyFile) error {
		f.admitted = next
		return nil
	})
	if err != nil {
		ids.log.Error("the state of the key's replacement cannot be written", "err", err)
	}
	return err == nil
}

// serve makes and starts the registration of a key, unless there is one.
func (ids *identities) serve(key *keys.PrivateKey, start func(*identity)) (*identity, error) {
	ids.mu.Lock()
	id := ids.running[key.Public()]
	ids.mu.Unlock()
	if id != nil {
		return id, nil
	}
	id, err := ids.add(key)
	if err == nil {
		start(id)
	}
	return id, err
}

// endReplaced ends what is served under keys that are not ours any more. It is in reach of a change of the clients until
// nothing of it is left.
func (ids *identities) endReplaced(current, next *keys.PrivateKey) {
	ids.mu.Lock()
	gone := make(map[keys.PublicKey]*identity)
	for key, id := range ids.running {
		if key != current.Public() && (next == nil || key != next.Public()) {
			gone[key] = id
		}
	}
	ids.mu.Unlock()
	for key, id := range gone {
		id.stop()
		<-id.ended
		ids.mu.Lock()
		delete(ids.running, key)
		ids.mu.Unlock()
	}
}

// tellRetired tells the relay of keys that were replaced.
func (ids *identities) tellRetired(ctx context.Context, serving *identity) {
	f, err := readRekeyFile(ids.state.join(rekeyFileName))
	if err != nil {
		ids.log.Error("the state of the key's replacement cannot be read", "err", err)
	}
	for _, old := range f.retire {
		if current, _ := ids.ring.keys(); old == current.Public() {
			// The finish was cut short before the keys changed places: it is for the overlap to end again.
			if err := changeRekeyFile(ids.state.path, func(f *rekeyFile) error {
				f.retire = nil
				return nil
			}); err != nil {
				ids.log.Error("the state of the key's replacement cannot be written", "err", err)
			}
			continue
		}
		if !ids.persist(ctx, "the relay admits the replaced key still", func() error {
			err := serving.Retire(ctx, old)
			if wire.CodeOf(err) == wire.CodeNotFound {
				return nil
			}
			return err
		}) {
			return
		}
		if err := changeRekeyFile(ids.state.path, func(f *rekeyFile) error {
			*f = rekeyFile{}
			return nil
		}); err != nil {
			ids.log.Error("the state of the key's replacement cannot be removed", "err", err)
		}
		ids.log.Info("the executor's key has been replaced", "old", old.String())
	}
}

// registered reports whether a key is served and known to the relay now.
func (ids *identities) registered(key keys.PublicKey) bool {
	ids.mu.Lock()
	id := ids.running[key]
	ids.mu.Unlock()
	return id != nil && id.Registered()
}

// persist tries something until it works; false: ctx ended before, or the relay will never do it.
func (ids *identities) persist(ctx context.Context, what string, try func() error) bool {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		err := try()
		if err == nil {
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		ids.log.Warn(what, "err", err, "retry_in", wait)
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return false
		}
	}
}
