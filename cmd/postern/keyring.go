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

	"github.com/postern-relay/postern/keys"
)

// keyring is a daemon's own key and, while that is being replaced, the next one, which lies beside it
// as NAME.next. Commands make and rename the files (rekey.go); the daemon follows them. The rename
// is the moment of the replacement: there is no time at which both or none is the key.
type keyring struct {
	path string
	kind keys.Kind

	mu            sync.Mutex
	current, next *keys.PrivateKey
}

// nextSuffix is what the next key's file has after the name of the current one's.
const nextSuffix = ".next"

// openKeyring reads the keys, and makes the first one where there is none.
func openKeyring(path string, kind keys.Kind) (*keyring, error) {
	k := &keyring{path: path, kind: kind}
	if _, _, err := keys.LoadOrGenerate(path, kind); err != nil {
		return nil, err
	}
	_, err := k.load()
	return k, err
}

// load reads both files and reports whether anything has changed.
func (k *keyring) load() (changed bool, err error) {
	next, err := readNextKey(k.path, k.kind)
	if err != nil {
		return false, err
	}
	current, err := keys.ReadFile(k.path, k.kind)
	if err != nil {
		return false, err
	}
	if next != nil && next.Public() == current.Public() { // renamed between the two readings
		next = nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = !sameKey(k.current, current) || !sameKey(k.next, next)
	k.current, k.next = current, next
	return changed, nil
}

// readNextKey is nil where there is none.
func readNextKey(path string, kind keys.Kind) (*keys.PrivateKey, error) {
	next, err := keys.ReadFile(path+nextSuffix, kind)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return next, err
}

func sameKey(a, b *keys.PrivateKey) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Public() == b.Public()
}

// keys is both of them; next may be nil.
func (k *keyring) keys() (current, next *keys.PrivateKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current, k.next
}

// keyPoll is how soon a daemon sees that its key is to be replaced, or has been.
const keyPoll = time.Second

// run follows the files until ctx ends. What cannot be read is logged once, and what was read last goes on.
func (k *keyring) run(ctx context.Context, log *slog.Logger, changed func()) {
	ticker := time.NewTicker(keyPoll)
	defer ticker.Stop()
	failure := ""
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		switch different, err := k.load(); {
		case err != nil && err.Error() != failure:
			failure = err.Error()
			log.Error("key files cannot be read, the keys read last stay in use", "err", err)
		case err == nil:
			if failure = ""; different {
				changed()
			}
		}
	}
}

// beginRekey makes the next key.
func beginRekey(path string, kind keys.Kind) (keys.PublicKey, error) {
	if _, err := keys.ReadFile(path, kind); err != nil {
		return keys.PublicKey{}, err
	}
	next, err := keys.Generate(kind)
	if err != nil {
		return keys.PublicKey{}, err
	}
	err = keys.WriteFile(path+nextSuffix, next)
	if errors.Is(err, fs.ErrExist) {
		return keys.PublicKey{}, fmt.Errorf("a replacement is under way already: end it with --finish (%w)", err)
	}
	return next.Public(), err
}

// finishRekey puts the next key in the place of the current one, which is gone then.
func finishRekey(path string, kind keys.Kind) (old, current keys.PublicKey, err error) {
	next, err := readNextKey(path, kind)
	if err != nil {
		return old, current, err
	}
	if next == nil {
		return old, current, errors.New("no replacement is under way: begin one without --finish")
	}
	before, err := keys.ReadFile(path, kind)
	if err != nil {
		return old, current, err
	}
	if err := os.Rename(path+nextSuffix, path); err != nil {
		return old, current, err
	}
	return before.Public(), next.Public(), syncFolder(filepath.Dir(path))
}
