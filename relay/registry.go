package relay

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// registry knows the connection on which each executor can be reached.
//
// A key belongs to one process. The newest connection of the process that holds the key
// takes over at once: it is the one that just dialled, the old one may be half dead
// behind a NAT that forgot it. Another process with the same key (a cloned machine) must
// not take over from one that is alive, or the two would take turns for ever; it gets in
// only when the incumbent does not answer a ping.
//
// A registration has two steps, because finding out whether an incumbent lives takes time:
// claim gives out a generation, install makes it the one that dials reach.
type registry struct {
	metrics *metrics

	mu         sync.Mutex
	generation uint64 // of the newest claim
	byKey      map[[32]byte]*registration
}

// registration is one executor connection, or its claim.
type registration struct {
	conn       *conn
	instance   wire.ID
	generation uint64
}

func newRegistry(m *metrics) *registry {
	return &registry{metrics: m, byKey: make(map[[32]byte]*registration)}
}

// claim asks to register c. When another process holds the key, its registration comes
// back as well: the caller finds out whether it lives, and installs over it if not.
func (r *registry) claim(c *conn, instance wire.ID) (mine, foreign *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.generation++
	mine = &registration{conn: c, instance: instance, generation: r.generation}
	if current := r.byKey[c.key.Raw()]; current != nil && current.instance != instance {
		return mine, current
	}
	return mine, nil
}

// install makes mine the registration of its key. It may replace an older one of the same
// process, and dead, which did not answer. The error says why mine lost to a connection
// that came in between.
func (r *registry) install(mine, dead *registration) (replaced *conn, err *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := mine.conn.key.Raw()
	current := r.byKey[key]
	switch {
	case current == nil || current == dead:
		if current == nil {
			r.metrics.registered.Inc()
		}
		if dead != nil {
			replaced = dead.conn
			r.metrics.superseded.WithLabelValues(causeDeadIncumbent).Inc()
		}
	case current.instance != mine.instance:
		return nil, duplicate()
	case current.generation > mine.generation:
		return nil, superseded()
	default:
		replaced = current.conn
		r.metrics.superseded.WithLabelValues(causeSameInstance).Inc()
	}
	r.byKey[key] = mine
	return replaced, nil
}

// remove takes mine out, unless a newer one has replaced it.
func (r *registry) remove(mine *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := mine.conn.key.Raw(); r.byKey[key] == mine {
		delete(r.byKey, key)
		r.metrics.registered.Dec()
	}
}

// lookup returns the connection of the executor with this key, or nil.
func (r *registry) lookup(key [32]byte) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if current := r.byKey[key]; current != nil {
		return current.conn
	}
	return nil
}

func superseded() *wire.Error {
	return wire.Errorf(wire.CodeSuperseded, "a newer connection of this executor took over")
}

func duplicate() *wire.Error {
	return &wire.Error{
		Code:       wire.CodeDuplicate,
		Text:       "another process uses this executor key and is alive: give each machine a key of its own",
		RetryAfter: retryDuplicate,
	}
}
