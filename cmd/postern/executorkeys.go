package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/spf13/cobra"

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

	mu       sync.Mutex
	running  map[keys.PublicKey]*identity
	admitted keys.PublicKey // the next key, once the relay admits it: clients are told from then on
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
		ids.mu.Lock()
		defer ids.mu.Unlock()
		if next == nil || current.Public() != key || next.Public() != ids.admitted {
			return keys.PublicKey{}
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
// ends a replaced one once the relay knows.
func (ids *identities) settle(ctx context.Context, start func(*identity)) {
	current, next := ids.ring.keys()
	ids.mu.Lock()
	serving := ids.running[current.Public()]
	ids.mu.Unlock()
	if serving == nil { // renamed before it was served
		id, err := ids.add(current)
		if err != nil {
			ids.log.Error("the executor's new key cannot be served", "err", err)
			return
		}
		start(id)
		serving = id
	}
	ids.retire(ctx, current, next, serving)
	if next == nil || ids.serves(next.Public()) {
		return
	}
	if !ids.persist(ctx, "the relay does not admit the next key yet", func() error { return serving.Follow(ctx, next.Public()) }) {
		return
	}
	id, err := ids.add(next)
	if err != nil {
		ids.log.Error("the executor's next key cannot be served", "err", err)
		return
	}
	ids.mu.Lock()
	ids.admitted = next.Public()
	ids.mu.Unlock()
	start(id)
	ids.log.Info("the executor's key is going to be replaced, and both are served", "next", next.Public().String())
}

// retire ends what is served under keys that are not ours any more, and tells the relay.
func (ids *identities) retire(ctx context.Context, current, next *keys.PrivateKey, serving *identity) {
	ids.mu.Lock()
	var gone []*identity
	for key, id := range ids.running {
		if key != current.Public() && (next == nil || key != next.Public()) {
			gone = append(gone, id)
			delete(ids.running, key)
		}
	}
	ids.mu.Unlock()
	path := ids.state.join(rekeyFileName)
	f, err := readRekeyFile(path)
	if err != nil {
		ids.log.Error("the state of the key's replacement cannot be read", "err", err)
	}
	for _, old := range f.retire {
		if !ids.persist(ctx, "the relay admits the replaced key still", func() error {
			err := serving.Retire(ctx, old)
			if wire.CodeOf(err) == wire.CodeNotFound {
				return nil
			}
			return err
		}) {
			break
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			ids.log.Error("the state of the key's replacement cannot be removed", "err", err)
		}
		ids.log.Info("the executor's key has been replaced", "old", old.String())
	}
	for _, id := range gone {
		id.stop()
		<-id.ended
	}
}

func (ids *identities) serves(key keys.PublicKey) bool {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	return ids.running[key] != nil
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

// countEvery is how much of the overlap a crash can lose.
const countEvery = 10 * time.Minute

// count counts the time in which both keys are served, and ends it when it is over.
func (ids *identities) count(ctx context.Context) {
	path := ids.state.join(rekeyFileName)
	for last := time.Now(); ; {
		f, err := readRekeyFile(path)
		_, next := ids.ring.keys()
		wait := countEvery
		if err == nil && next != nil && ids.serves(next.Public()) {
			wait = max(min(wait, f.overlap-f.served), time.Second)
		} else {
			last = time.Now() // nothing to count
		}
		select {
		case <-time.After(min(wait, time.Minute)):
		case <-ctx.Done():
		}
		if _, now := ids.ring.keys(); err != nil || next == nil || now == nil || !ids.serves(next.Public()) {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		// The command may have ended the overlap meanwhile, and written down what the relay has to be told.
		f, err = readRekeyFile(path)
		if onDisk, keyErr := readNextKey(ids.ring.path, keys.Executor); err != nil || keyErr != nil || onDisk == nil || len(f.retire) > 0 {
			if ctx.Err() != nil {
				return
			}
			continue
		}
		f.served += time.Since(last)
		last = time.Now()
		if f.served >= f.overlap && ctx.Err() == nil {
			if err := finishExecutorRekey(ids.state.path); err != nil {
				ids.log.Error("the executor's key could not be replaced", "err", err)
			}
			continue
		}
		if err := f.write(path); err != nil {
			ids.log.Error("the state of the key's replacement cannot be written", "err", err)
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// beginExecutorRekey makes the next key.
func beginExecutorRekey(state string, overlap time.Duration) (keys.PublicKey, error) {
	f, err := readRekeyFile(filepath.Join(state, rekeyFileName))
	if err != nil {
		return keys.PublicKey{}, err
	}
	if len(f.retire) > 0 {
		return keys.PublicKey{}, errors.New("the relay does not know of the last replacement yet: let the executor run until its log says that the key has been replaced")
	}
	path := filepath.Join(state, executorKeyName)
	if _, err := os.Lstat(path + nextSuffix); err == nil {
		return keys.PublicKey{}, errors.New("a replacement is under way already: end it with --finish")
	}
	if err := (rekeyFile{overlap: overlap}).write(filepath.Join(state, rekeyFileName)); err != nil {
		return keys.PublicKey{}, err
	}
	return beginRekey(path, keys.Executor)
}

// finishExecutorRekey puts the next key in the place of the current one. What the relay has to be told is written
// down before.
func finishExecutorRekey(state string) error {
	path := filepath.Join(state, executorKeyName)
	old, err := keys.ReadFile(path, keys.Executor)
	if err != nil {
		return err
	}
	if next, err := readNextKey(path, keys.Executor); err != nil || next == nil {
		return errors.Join(err, errors.New("no replacement is under way: begin one without --finish"))
	}
	f, err := readRekeyFile(filepath.Join(state, rekeyFileName))
	if err != nil {
		return err
	}
	f.retire = []keys.PublicKey{old.Public()}
	if err := f.write(filepath.Join(state, rekeyFileName)); err != nil {
		return err
	}
	_, _, err = finishRekey(path, keys.Executor)
	return err
}

func newExecutorRekey(std stdio) *cobra.Command {
	var state string
	var overlap time.Duration
	var finish bool
	cmd := &cobra.Command{
		Use:   "rekey --state DIR [--overlap D] [--finish]",
		Short: "Replace this executor's key",
		Long: `Replace this executor's key, while it runs or not. The next key is made, and for the overlap both
are served: each client that comes with the old one is told the next one, checks that whoever has it says the
same, and puts it into its known_executors. After that much running time, or with --finish at once,
the next key takes the place of the old one, which is gone then. A client that was not here in between has to
learn the new key by a join token, or by hand with postern known.

When a key may have been stolen this is not the way, since a thief could do the same: remove the
key at the relay and at the clients, and join anew with an empty state folder.

The next public key is printed.`,
		Example: `  postern executor rekey --state /var/lib/postern-executor`,
		Args:    noWords,
		RunE: func(*cobra.Command, []string) error {
			if state == "" {
				return errors.New("--state is missing: name the executor's state folder")
			}
			if overlap <= 0 {
				return fmt.Errorf("--overlap %v: want a time above zero", overlap)
			}
			if finish {
				return failed(finishExecutorRekey(state))
			}
			next, err := beginExecutorRekey(state, overlap)
			if err != nil {
				return failed(err)
			}
			fmt.Fprintln(std.out, next)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&state, "state", "", "the executor's state folder")
	f.DurationVar(&overlap, "overlap", 7*24*time.Hour, "how long both keys are served, in running time of the executor")
	f.BoolVar(&finish, "finish", false, "end the overlap now")
	return cmd
}
