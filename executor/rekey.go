package executor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// While an executor replaces its key there are two Executors with one Backend: the one with the old key names the next
// one to its clients, the one with the next key names the old one, and a client believes it when it has
// heard both. Their owner starts and ends them; this file has what they ask of the relay.

// registered is the connection on which the executor is registered now.
type registered struct {
	mu      sync.Mutex
	current wire.Transport // nil: none
	changed chan struct{}  // closed at the next change
}

func (r *registered) set(t wire.Transport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current = t
	if r.changed != nil {
		close(r.changed)
		r.changed = nil
	}
}

// wait returns once there is a connection.
func (r *registered) wait(ctx context.Context) (wire.Transport, error) {
	for {
		r.mu.Lock()
		t := r.current
		if t == nil && r.changed == nil {
			r.changed = make(chan struct{})
		}
		changed := r.changed
		r.mu.Unlock()
		if t != nil {
			return t, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// Registered reports whether the executor is registered with its relay now.
func (e *Executor) Registered() bool {
	e.registered.mu.Lock()
	defer e.registered.mu.Unlock()
	return e.registered.current != nil
}

// AwaitRegistration returns once the executor is registered, or with the cause of ctx.
func (e *Executor) AwaitRegistration(ctx context.Context) error {
	_, err := e.registered.wait(ctx)
	return err
}

// Follow asks the relay to admit next beside this executor's key, under its name: the key that is going to
// replace it. It waits until the executor is registered. To ask again changes nothing. A refusal is a *wire.Error.
func (e *Executor) Follow(ctx context.Context, next keys.PublicKey) error {
	return e.ask(ctx, &wire.Follow{Executor: next.Raw()})
}

// Retire asks the relay to admit old no longer, which this executor's key has replaced; see Follow. The code
// is wire.CodeNotFound where that has been done.
func (e *Executor) Retire(ctx context.Context, old keys.PublicKey) error {
	return e.ask(ctx, &wire.Retire{Executor: old.Raw()})
}

// ask sends a request and reads the reply.
func (e *Executor) ask(ctx context.Context, request wire.Message) error {
	t, err := e.registered.wait(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	s, err := t.OpenStream(ctx)
	if err != nil {
		return err
	}
	defer s.Reset(wire.CodeCancelled)
	stop := context.AfterFunc(ctx, func() { s.Reset(wire.CodeCancelled) })
	defer stop()
	if err := wire.WriteFrame(s, request); err != nil {
		return err
	}
	s.CloseWrite()
	m, err := wire.ReadFrame(s)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = wire.ErrLost
	}
	if err != nil {
		return fmt.Errorf("no answer from the relay: %w", err)
	}
	reply, ok := m.(*wire.Reply)
	if !ok {
		return wire.Errorf(wire.CodeProtocol, "the relay answered with a %T", m)
	}
	return reply.Err()
}

// relayPin is what the executor knows of its relay.
type relayPin struct {
	mu      sync.Mutex
	key     keys.PublicKey   // that it must prove
	before  []keys.PublicKey // those that it had, oldest first
	noticed time.Time        // when a notice of it was logged last
}

// relayKey is the key that the relay must prove: as configured, or the one that has replaced it.
func (e *Executor) relayKey() keys.PublicKey {
	e.pin.mu.Lock()
	defer e.pin.mu.Unlock()
	return e.pin.key
}

// maxRelayKeys bounds the next keys that are followed: a relay replaces its key once in a while, and one that is out of its
// mind must not fill a disk.
const maxRelayKeys = 64

// follow takes the relay's next key for all connections to come, if it was told over a channel that the key in force has
// authenticated. It only goes forward: a key that was replaced is not taken again.
func (e *Executor) follow(by keys.PublicKey, next *wire.Bytes32) {
	if next == nil {
		return
	}
	key, err := keys.NewPublicKey(keys.Relay, *next)
	if err != nil {
		return
	}
	e.pin.mu.Lock()
	old := e.pin.key
	news := old == by && key != old && !slices.Contains(e.pin.before, key) && len(e.pin.before) < maxRelayKeys
	if news {
		e.pin.before = append(e.pin.before, old)
		e.pin.key = key
	}
	e.pin.mu.Unlock()
	if !news {
		return
	}
	e.cfg.Log.Info("the relay is going to replace its key, the next one is pinned now", "old", old, "next", key)
	if e.cfg.RelayKeyReplaced != nil {
		e.cfg.RelayKeyReplaced(old, key)
	}
}

// announced is a key for a welcome; nil for none.
func announced(key func() keys.PublicKey) *wire.Bytes32 {
	if key == nil {
		return nil
	}
	k := key()
	if k.IsZero() {
		return nil
	}
	raw := wire.Bytes32(k.Raw())
	return &raw
}

// noticeEvery is how often the log repeats what the relay says.
const noticeEvery = time.Minute

// notice logs what the relay says about the connection.
func (e *Executor) notice(m wire.HopNotice) {
	now := time.Now()
	e.pin.mu.Lock()
	fresh := now.Sub(e.pin.noticed) >= noticeEvery
	if fresh {
		e.pin.noticed = now
	}
	e.pin.mu.Unlock()
	if !fresh {
		return
	}
	if m.Code == wire.CodeDuplicate {
		e.cfg.Log.Warn("another machine came to the relay with this executor's key and was refused: a copy of this one; give it a key of its own", "code", m.Code)
		return
	}
	e.cfg.Log.Info("the relay says", "code", m.Code, "text", m.Text)
}
