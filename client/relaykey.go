package client

import (
	"context"
	"slices"
	"sync"

	"github.com/postern-relay/postern/keys"
)

// relayPins are the keys that a link has pinned for its relay, the one in force last. It only ever goes
// forward: a key that was replaced is not pinned again, whoever asks for it.
type relayPins struct {
	tell *lingering
	news func(old, next keys.PublicKey) // nil: nobody is told

	mu   sync.Mutex
	pins []keys.PublicKey
	told chan struct{} // closed when the last news was told; nil before the first
}

// current is the key that the relay must prove.
func (r *relayPins) current() keys.PublicKey {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pins[len(r.pins)-1]
}

// announced takes over the next key that a relay named inside a connection which the pinned one has
// authenticated. It reports whether the pin has changed.
func (r *relayPins) announced(by keys.PublicKey, raw [32]byte) bool {
	next, err := keys.NewPublicKey(keys.Relay, raw)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.pins[len(r.pins)-1] != by || slices.Contains(r.pins, next) {
		return false
	}
	r.pins = append(r.pins, next)
	if r.news == nil {
		return true
	}
	before, done := r.told, make(chan struct{})
	r.told = done
	r.tell.start(func(context.Context) {
		r.tell.tell(func() {
			defer close(done)
			if before != nil {
				<-before // a pin that is written down is found by the key which it replaces
			}
			r.news(by, next)
		})
	})
	return true
}
