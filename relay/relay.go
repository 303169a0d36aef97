// Package relay admits peers and joins their streams: an executor dials in and stays
// registered, a client dials in and asks for a circuit to an executor, and the relay
// copies bytes between the two until both directions have ended.
//
// It is blind. What travels through a circuit is sealed between client and executor, and
// this package neither knows nor imports what they say to each other; it sees keys, sizes
// and times. It runs nothing, and what a client may do on an executor is decided there:
// its roster only says who may use the relay, and which clients may reach which executors:
// those of their own tenant (package roster).
//
// Data flow. [Server.Serve] accepts transports, one goroutine each (conn.go). The first
// stream carries the hop's Noise handshake over the transport's channel binding
// (handshake.go), then the control conversation: pings and their answers. The handshake's
// key is looked up in the roster; an executor that is not there may join by a token. An executor
// goes into the registry (registry.go), which holds at most one connection for a key. On
// a client's connection each further stream begins with a Dial frame (circuit.go); the
// relay opens a stream on the executor's connection, puts Incoming on it and a DialReply
// on the client's, and splices the two (splice.go). A stream that begins with another frame
// is a request to the relay itself (request.go): about tokens and the tenant's executors from a
// client, about its own key from an executor.
//
// Ownership. A connection owns its transport, its control stream and the goroutines of
// its streams, and waits for them. A circuit belongs to the client's connection; the
// stream on the executor's side is closed by the circuit, or by the end of that
// connection, whichever is first. The registry owns nothing: it points at connections. The roster
// owns its files and belongs to the caller, who calls Recheck when it has changed.
//
// Start with [New] and [Server.Serve]; limits.go has what bounds a peer.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/accounting"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// Config is what a relay needs. Keys and Roster are required.
type Config struct {
	// Keys returns the relay's identity, of the kind keys.Relay, and while that is being
	// replaced the next one, else nil. Handshakes to either are answered; peers that come with
	// the first are told the second. It is called for each connection, by several goroutines,
	// and must not block.
	Keys func() (current, next *keys.PrivateKey)
	// Roster is who is admitted. It is the caller's.
	Roster *roster.Roster
	// Log gets the life of connections at Info and of circuits at Debug; nil discards.
	Log *slog.Logger
	// Registry gets the metrics, named postern_relay_...; nil is a registry of its own.
	Registry *prometheus.Registry
	// TenantSeries adds metrics with the names of tenants, of which the first 200 have series of
	// their own.
	TenantSeries bool
	// Accounting gets a record of what each circuit has carried; see package accounting. It must
	// not wait. Nil: nothing is written.
	Accounting func(accounting.Record)
	// Limits bound the peers. Zero fields have defaults.
	Limits Limits
}

// Listener is where transports come from, such as a quicconn.Listener.
type Listener interface {
	// Accept returns the next transport. Its peer is not authenticated yet.
	Accept(context.Context) (wire.Transport, error)
	Close() error
}

// Server is a relay. Make it with [New]. Its methods are safe for concurrent use.
type Server struct {
	keys       func() (current, next *keys.PrivateKey)
	roster     *roster.Roster
	log        *slog.Logger
	limits     Limits
	metrics    *metrics
	registry   *registry
	handshakes chan struct{} // a slot for each in flight
	backlogs   budget
	perKey     *tally[keys.PublicKey] // connections
	perTenant  *tally[string]         // connections
	circuits   *tally[keys.PublicKey] // of clients
	dialled    *tally[string]         // circuits of tenants
	paces      *paces                 // of tenants
	keyPaces   *paces
	accounting func(accounting.Record)
	started    time.Time
	draining   atomic.Bool
	drained    chan struct{} // closed with the last circuit of a drain
	open       atomic.Int64  // circuits
	ids        atomic.Uint64 // of connections and circuits

	mu          sync.Mutex
	conns       map[*conn]struct{} // admitted ones
	disconnects []Disconnect       // the latest
	listeners   map[Listener]struct{}
}

// New makes a relay that does nothing until Serve.
func New(cfg Config) (*Server, error) {
	if err := checkKeys(cfg.Keys); err != nil {
		return nil, err
	}
	if cfg.Roster == nil {
		return nil, errors.New("relay without a roster")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Registry == nil {
		cfg.Registry = prometheus.NewRegistry()
	}
	limits := cfg.Limits.orDefaults()
	s := &Server{
		keys: cfg.Keys, roster: cfg.Roster, log: cfg.Log, limits: limits,
		handshakes: make(chan struct{}, limits.Handshakes), backlogs: budget{most: limits.Backlog},
		perKey: newTally[keys.PublicKey](), perTenant: newTally[string](),
		circuits: newTally[keys.PublicKey](), dialled: newTally[string](),
		paces: newPaces(), keyPaces: newPaces(), accounting: cfg.Accounting, started: time.Now(), drained: make(chan struct{}),
		conns: make(map[*conn]struct{}), listeners: make(map[Listener]struct{}),
	}
	var err error
	if s.metrics, err = newMetrics(cfg.Registry, s.backlogs.held, cfg.TenantSeries); err != nil {
		return nil, fmt.Errorf("relay metrics: %w", err)
	}
	s.registry = newRegistry(s.metrics)
	s.metrics.ready.Set(1)
	return s, nil
}

func checkKeys(both func() (current, next *keys.PrivateKey)) error {
	if both == nil {
		return errors.New("relay without a key")
	}
	current, next := both()
	if current == nil || current.Kind() != keys.Relay || next != nil && next.Kind() != keys.Relay {
		return errors.New("relay without a relay key")
	}
	return nil
}

// Serve accepts transports from l until ctx is done, then tells every peer that the relay
// goes away, waits for all goroutines, closes l and returns nil. It returns an error, after
// the same clean-up, when l fails. One Server may serve several listeners at a time.
func (s *Server) Serve(ctx context.Context, l Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var peers sync.WaitGroup
	var failure error
	peers.Go(func() { s.sampleLinks(ctx) })
	s.serving(l, true)
	defer s.serving(l, false)
	for {
		t, err := l.Accept(ctx)
		if err != nil && s.draining.Load() {
			<-ctx.Done() // nobody new, and the others go on until whoever drains has had enough
			break
		}
		if err != nil {
			if ctx.Err() == nil {
				failure = fmt.Errorf("accept connections: %w", err)
			}
			break
		}
		peers.Go(func() { s.serveTransport(ctx, t) })
	}
	cancel()
	peers.Wait()
	return errors.Join(failure, l.Close())
}

// Recheck closes the connections of peers that the roster does not admit any more, or admits
// under another name or tenant: these come back at once. Whoever changes the roster calls it right after. It
// returns when they are closed.
func (s *Server) Recheck() {
	current := s.roster.Current()
	var closing sync.WaitGroup
	for _, c := range s.admitted() {
		if !c.admittedBy(current) {
			closing.Go(func() { c.revoke() })
		}
	}
	closing.Wait()
	s.registry.forget(func(key [32]byte) bool {
		k, err := keys.NewPublicKey(keys.Executor, key)
		_, ok := current.Lookup(k)
		return err == nil && ok
	})
	there := func(tenant string) bool {
		_, ok := current.Tenant(tenant)
		return ok
	}
	s.metrics.tenants.forget(there)
	s.paces.adjust(there, s.tenantBytes)
	s.keyPaces.adjust(func(key string) bool {
		k, err := keys.ParsePublicKey(key)
		_, ok := current.Lookup(k)
		return err == nil && ok
	}, s.keyBytes)
}

// keyBytes is the rate of every client's key.
func (s *Server) keyBytes(string) int { return s.limits.ClientBytes }

func (s *Server) admitted() []*conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]*conn, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	return list
}

// serving notes the listeners for a drain.
func (s *Server) serving(l Listener, yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if yes {
		s.listeners[l] = struct{}{}
	} else {
		delete(s.listeners, l)
	}
}

func (s *Server) add(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c] = struct{}{}
}

func (s *Server) remove(c *conn, d Disconnect) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.disconnected(d)
}
