package relay

import (
	"math"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
)

// Limits bound what peers can make the relay hold. A zero or negative field has the
// default in its comment. Deadlines and sizes of the protocol itself are constants of
// package wire.
type Limits struct {
	// Handshakes is how many connections may be between accept and admission at a time;
	// more are refused as busy. Default 256.
	Handshakes int
	// ClientConnections is how many connections one client key may have. Default 256.
	ClientConnections int
	// ExecutorConnections is the same for an executor key, of which one is registered and
	// the others are on their way in or out. Default 4.
	ExecutorConnections int
	// ClientCircuits is how many circuits one client key may have on all its connections
	// together; another one is busy. Default 1024.
	ClientCircuits int
	// ExecutorCircuits is how many circuits one executor may have. Default 10000, which is
	// as many streams as an executor lets the relay open.
	ExecutorCircuits int
	// ClientBytes is how many bytes a second all circuits of one client key carry, both ways
	// together, within what its tenant may have. Default: no limit.
	ClientBytes int
	// KeyHandshakes is how many handshakes a second one key may make; twice as many may come
	// at once. Default: no limit.
	KeyHandshakes int
	// Backlog is how many bytes the relay holds for slow receivers, on all circuits together.
	// Beyond it a slow circuit holds up the others of its sender. Default 256 MiB.
	Backlog int
	// Stall is how long one side of a circuit may take not a single byte while the other
	// side has some for it, before the circuit is reset; it may take up to twice as long to
	// be sure. Default 30 s. Both ends of a circuit always read it, so only a broken one
	// stalls.
	Stall time.Duration
}

func (l Limits) orDefaults() Limits {
	for _, f := range []struct {
		value     *int
		otherwise int
	}{
		{&l.Handshakes, 256},
		{&l.ClientConnections, 256},
		{&l.ExecutorConnections, 4},
		{&l.ClientCircuits, 1024},
		{&l.ExecutorCircuits, 10_000},
		{&l.Backlog, 256 << 20},
	} {
		if *f.value <= 0 {
			*f.value = f.otherwise
		}
	}
	if l.Stall <= 0 {
		l.Stall = 30 * time.Second
	}
	return l
}

// connections is how many a key of this kind may have.
func (l Limits) connections(kind keys.Kind) int {
	if kind == keys.Executor {
		return l.ExecutorConnections
	}
	return l.ClientConnections
}

// Waits that the relay asks for in a refusal.
const (
	retryBusy      = time.Second      // a limit: something ends soon
	retryDuplicate = 60 * time.Second // a second machine with the same key: somebody must look
	retryExecutors = time.Minute      // a tenant has as many executors as it may
)

// orNone is a tenant's limit, of which zero is none.
func orNone(limit int) int {
	if limit == 0 {
		return math.MaxInt
	}
	return limit
}

// tenantLimits are those in force now.
func (s *Server) tenantLimits(tenant string) keys.TenantLimits {
	t, _ := s.roster.Current().Tenant(tenant)
	return t.Limits
}

func (s *Server) tenantBytes(tenant string) int { return s.tenantLimits(tenant).Bytes }

// tally counts what keys, or tenants, hold.
type tally[K comparable] struct {
	mu    sync.Mutex
	count map[K]int
}

func newTally[K comparable]() *tally[K] { return &tally[K]{count: make(map[K]int)} }

// take counts one more for key, unless it has limit of them.
func (t *tally[K]) take(key K, limit int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key] >= limit {
		return false
	}
	t.count[key]++
	return true
}

func (t *tally[K]) release(key K) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count[key]--; t.count[key] <= 0 {
		delete(t.count, key)
	}
}
