package relay

import (
	"sync"
	"time"

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
	perTenant  map[string]int         // executors
	seen       map[[32]byte]time.Time // when an executor that is not connected was last
}

// registration is one executor connection, or its claim.
type registration struct {
	conn       *conn
	instance   wire.ID
	generation uint64
	replaced   *conn // the one before, as long as it has circuits
}

func newRegistry(m *metrics) *registry {
	return &registry{
		metrics: m, byKey: make(map[[32]byte]*registration),
		perTenant: make(map[string]int), seen: make(map[[32]byte]time.Time),
	}
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

// install makes mine the registration of its key, of which the tenant may have most. It may
// replace an older one of the same process, and dead, which did not answer. The error says why
// mine lost, mostly to a connection that came in between. Of those that were replaced before, one may
// go on with its circuits: the next one is stale, and to be closed.
func (r *registry) install(mine, dead *registration, most int) (replaced, stale *conn, err *wire.Error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, tenant := mine.conn.key.Raw(), mine.conn.tenant
	current := r.byKey[key]
	vacant := current == nil || current == dead
	switch {
	case !vacant && current.instance != mine.instance:
		return nil, nil, duplicate()
	case !vacant && current.generation > mine.generation:
		return nil, nil, superseded()
	// One that was moved to this tenant is new to it, although its old connection may not be closed yet.
	case (current == nil || current.conn.tenant != tenant) && r.perTenant[tenant] >= most && !r.follows(mine.conn):
		return nil, nil, &wire.Error{Code: wire.CodeBusy, Text: "this tenant has as many executors as it may", RetryAfter: retryExecutors}
	case !vacant:
		replaced = current.conn
		r.metrics.superseded.WithLabelValues(causeSameInstance).Inc()
	case dead != nil:
		replaced = dead.conn
		r.metrics.superseded.WithLabelValues(causeDeadIncumbent).Inc()
	}
	if current != nil {
		r.leave(current.conn.tenant)
		stale = current.replaced
	} else {
		r.metrics.registered.Inc()
	}
	r.perTenant[tenant]++
	mine.replaced = replaced
	r.byKey[key] = mine
	delete(r.seen, key)
	return replaced, stale, nil
}

// follows reports whether the key that c's is going to replace is registered, or the one that is going to replace c's: the two
// are one machine, which would have to give up one place to get the other.
func (r *registry) follows(c *conn) bool {
	if followed := r.byKey[c.follows.Raw()]; !c.follows.IsZero() && followed != nil && followed.conn.tenant == c.tenant {
		return true
	}
	for _, other := range r.byKey {
		if other.conn.follows == c.key && other.conn.tenant == c.tenant {
			return true
		}
	}
	return false
}

// remove takes mine out, unless a newer one has replaced it.
func (r *registry) remove(mine *registration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if key := mine.conn.key.Raw(); r.byKey[key] == mine {
		delete(r.byKey, key)
		r.leave(mine.conn.tenant)
		r.seen[key] = time.Now()
		r.metrics.registered.Dec()
	}
}

// leave counts one executor less for a tenant.
func (r *registry) leave(tenant string) {
	if r.perTenant[tenant]--; r.perTenant[tenant] <= 0 {
		delete(r.perTenant, tenant)
	}
}

// lookup returns the connection of the executor with this key if it is of this tenant, or nil: who
// asks for another tenant's executor finds what he would find if there were none.
func (r *registry) lookup(tenant string, key [32]byte) *conn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if current := r.byKey[key]; current != nil && current.conn.tenant == tenant {
		return current.conn
	}
	return nil
}

// presence says whether the executor with this key is connected, and else when it was last, zero
// for not since the relay began.
func (r *registry) presence(key [32]byte) (online bool, seen time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byKey[key] != nil {
		return true, time.Now()
	}
	return false, r.seen[key]
}

// forget drops when executors were seen that are not wanted any more.
func (r *registry) forget(wanted func(key [32]byte) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range r.seen {
		if !wanted(key) {
			delete(r.seen, key)
		}
	}
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
