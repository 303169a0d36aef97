// Package relaytest runs a relay inside a test of another package, over QUIC on loopback
// or over in-memory transports.
//
// It is the real relay with a list of peers that the test changes as it goes; nothing is
// simulated but, where asked for, the network. It is not a relay for anything else: its
// key lives in memory and everything ends with the test.
//
// Start with [Start]; use [Serve] and [NewListener] where no socket may be opened, such as
// in a testing/synctest bubble.
package relaytest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// Relay is a running relay. Its methods are for one goroutine at a time.
type Relay struct {
	// Key is the relay's identity, kept over restarts.
	Key *keys.PrivateKey
	// Metrics is where the relay's collectors are, fresh after a restart.
	Metrics *prometheus.Registry

	t       testing.TB
	limits  relay.Limits
	log     *slog.Logger
	more    func(*relay.Config) // nil: nothing
	address string              // on loopback; "" in memory
	run     *running

	mu     sync.Mutex
	next   *keys.PrivateKey
	roster *roster.Roster
	path   string // of the roster's list
	peers  map[keys.PublicKey]listed
	named  int // how many names were given
	bounds map[string]keys.TenantLimits
}

// listed is a line of the list.
type listed struct{ tenant, name string }

// Tenant is the tenant of everybody who is admitted without naming another.
const Tenant = "test"

// running is the relay between a start and a stop.
type running struct {
	server   *relay.Server
	listener *crashing
	cancel   context.CancelFunc
	ended    chan error
}

// Start runs a relay on a [FreeAddress] until the test ends. It admits
// nobody until Allow.
func Start(t testing.TB) *Relay { return StartLimited(t, relay.Limits{}) }

// StartLimited is Start with other limits.
func StartLimited(t testing.TB, limits relay.Limits) *Relay {
	t.Helper()
	r := prepare(t, limits)
	r.address = FreeAddress(t)
	r.Restart()
	return r
}

// Serve runs a relay on a listener of the caller's, such as one made by [NewListener],
// until the test ends. It cannot be restarted.
func Serve(t testing.TB, l relay.Listener, limits relay.Limits) *Relay {
	t.Helper()
	return ServeLogged(t, l, limits, nil)
}

// ServeLogged is Serve with the relay's log; nil discards.
func ServeLogged(t testing.TB, l relay.Listener, limits relay.Limits, log *slog.Logger) *Relay {
	t.Helper()
	r := prepare(t, limits)
	r.log = log
	r.start(l)
	return r
}

// ServeWith is Serve with what more sets in the relay's configuration.
func ServeWith(t testing.TB, l relay.Listener, more func(*relay.Config)) *Relay {
	t.Helper()
	r := prepare(t, relay.Limits{})
	r.more = more
	r.start(l)
	return r
}

// StartWith is Start with what more sets in the relay's configuration.
func StartWith(t testing.TB, more func(*relay.Config)) *Relay {
	t.Helper()
	r := prepare(t, relay.Limits{})
	r.more = more
	r.address = FreeAddress(t)
	r.Restart()
	return r
}

func prepare(t testing.TB, limits relay.Limits) *Relay {
	t.Helper()
	key, err := keys.Generate(keys.Relay)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := &Relay{Key: key, t: t, limits: limits, path: filepath.Join(dir, roster.ListedFile), peers: make(map[keys.PublicKey]listed), bounds: make(map[string]keys.TenantLimits)}
	r.write()
	if r.roster, err = roster.Open(dir, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Stop)
	return r
}

func (r *Relay) start(l relay.Listener) {
	r.t.Helper()
	r.Metrics = prometheus.NewPedanticRegistry()
	cfg := relay.Config{Keys: r.keys, Roster: r.roster, Log: r.log, Registry: r.Metrics, Limits: r.limits}
	if r.more != nil {
		r.more(&cfg)
	}
	server, err := relay.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r.run = &running{
		server: server, listener: &crashing{Listener: l, down: make(chan struct{})},
		cancel: cancel, ended: make(chan error, 1),
	}
	go func(run *running) { run.ended <- server.Serve(ctx, run.listener) }(r.run)
}

// crashing holds back the news that its listener has failed until the listener's
// connections are gone: the relay would still say goodbye on them.
type crashing struct {
	relay.Listener
	down    chan struct{}
	drained atomic.Bool // then it has not failed
}

func (c *crashing) Accept(ctx context.Context) (wire.Transport, error) {
	t, err := c.Listener.Accept(ctx)
	if err != nil && !c.drained.Load() {
		select {
		case <-c.down:
		case <-ctx.Done():
		}
	}
	return t, err
}

// Drain refuses newcomers at once where the listener can.
func (c *crashing) Drain() error {
	if d, ok := c.Listener.(interface{ Drain() error }); ok {
		c.drained.Store(true)
		return d.Drain()
	}
	return nil
}

// Address is where the relay listens, as host:port; "" in memory.
func (r *Relay) Address() string { return r.address }

// URL is the relay's address and key in the form that users give to a client.
func (r *Relay) URL() string { return "postern://" + r.address + "#" + r.Key.Public().String() }

// Allow admits a key to Tenant, under a name of its own.
func (r *Relay) Allow(key keys.PublicKey) {
	r.t.Helper()
	r.AllowIn(Tenant, key)
}

// AllowIn admits a key to a tenant, or moves it there, under a name of its own.
func (r *Relay) AllowIn(tenant string, key keys.PublicKey) {
	r.t.Helper()
	r.change(func() {
		r.peers[key] = listed{tenant, fmt.Sprintf("peer%d", r.named)}
		r.named++
	})
}

// AllowAs is AllowIn with a name, which must be free.
func (r *Relay) AllowAs(tenant string, key keys.PublicKey, name string) {
	r.t.Helper()
	r.change(func() { r.peers[key] = listed{tenant, name} })
}

// ListUnchecked is AllowIn that nobody reads before the next change: for long lists.
func (r *Relay) ListUnchecked(tenant string, key keys.PublicKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers[key] = listed{tenant, fmt.Sprintf("peer%d", r.named)}
	r.named++
}

// Remove takes a key from the list. When it returns the connections of that key are
// closed.
func (r *Relay) Remove(key keys.PublicKey) {
	r.t.Helper()
	r.change(func() { delete(r.peers, key) })
}

// Limit bounds a tenant; keys.TenantLimits{} lifts that.
func (r *Relay) Limit(tenant string, limits keys.TenantLimits) {
	r.t.Helper()
	r.change(func() { r.bounds[tenant] = limits })
}

// RemoveUnchecked is Remove without a look at the connections: what a relay is in between.
func (r *Relay) RemoveUnchecked(key keys.PublicKey) {
	r.t.Helper()
	r.edit(func() { delete(r.peers, key) })
}

// MoveUnchecked is AllowAs without a look at the connections.
func (r *Relay) MoveUnchecked(tenant string, key keys.PublicKey, name string) {
	r.t.Helper()
	r.edit(func() { r.peers[key] = listed{tenant, name} })
}

// RemoveTenant takes a tenant with all its members from the list.
func (r *Relay) RemoveTenant(tenant string) {
	r.t.Helper()
	r.change(func() {
		delete(r.bounds, tenant)
		for key, l := range r.peers {
			if l.tenant == tenant {
				delete(r.peers, key)
			}
		}
	})
}

// Drain is that of the relay's server.
func (r *Relay) Drain(ctx context.Context) { r.run.server.Drain(ctx) }

// Status is that of the relay's server.
func (r *Relay) Status() relay.Status { return r.run.server.Status() }

// Roster is who is admitted, with what the relay has enrolled itself.
func (r *Relay) Roster() *roster.Roster { return r.roster }

// Announce makes the relay hold a second key, and tell peers of it; nil: no more.
func (r *Relay) Announce(next *keys.PrivateKey) {
	r.mu.Lock()
	r.next = next
	r.mu.Unlock()
	if r.run != nil {
		r.run.server.AnnounceNextKey()
	}
}

func (r *Relay) keys() (current, next *keys.PrivateKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Key, r.next
}

// NewPeer makes a key of the given kind and admits it.
func (r *Relay) NewPeer(kind keys.Kind) *keys.PrivateKey {
	r.t.Helper()
	key, err := keys.Generate(kind)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Allow(key.Public())
	return key
}

// change edits the list as its file would be, and has the connections looked at.
func (r *Relay) change(edit func()) {
	r.t.Helper()
	r.edit(edit)
	if r.run != nil {
		r.run.server.Recheck()
	}
}

func (r *Relay) edit(edit func()) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	edit()
	r.write()
	if err := r.roster.Reload(); err != nil {
		r.t.Fatal(err)
	}
}

// write writes the list.
func (r *Relay) write() {
	r.t.Helper()
	sections := map[string]*strings.Builder{}
	section := func(tenant string) *strings.Builder {
		if sections[tenant] == nil {
			sections[tenant] = new(strings.Builder)
			fmt.Fprintf(sections[tenant], "tenant %s", tenant)
			limits := r.bounds[tenant]
			for name, n := range map[string]int{
				"conns": limits.Connections, "execs": limits.Executors, "circuits": limits.Circuits,
				"bytes/s": limits.Bytes, "handshakes/s": limits.Handshakes,
			} {
				if n != 0 {
					fmt.Fprintf(sections[tenant], " %s=%d", name, n)
				}
			}
			fmt.Fprintln(sections[tenant])
		}
		return sections[tenant]
	}
	section(Tenant)
	for tenant := range r.bounds {
		section(tenant)
	}
	for key, l := range r.peers {
		fmt.Fprintf(section(l.tenant), "%s %s %s\n", key.Kind(), key, l.name)
	}
	var text strings.Builder
	for _, lines := range sections {
		text.WriteString(lines.String())
	}
	if err := os.WriteFile(r.path, []byte(text.String()), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// Stop ends the relay as an operator does: peers are told, goroutines waited for. A second
// Stop does nothing.
func (r *Relay) Stop() {
	r.t.Helper()
	if r.run == nil {
		return
	}
	r.run.cancel()
	if err := <-r.run.ended; err != nil {
		r.t.Errorf("relay: %v", err)
	}
	r.run = nil
}

// Crash ends the relay without a word to its peers, as a killed process does.
func (r *Relay) Crash() {
	r.t.Helper()
	if r.run == nil {
		return
	}
	_ = r.run.listener.Close()
	close(r.run.listener.down)
	<-r.run.ended // the error is the one that was just made
	r.run.cancel()
	r.run = nil
}

// Restart stops the relay, if it runs, and starts it again on the same port with the same
// key and list of peers.
func (r *Relay) Restart() {
	r.t.Helper()
	r.Stop()
	if r.address == "" {
		r.t.Fatal("relay in memory cannot be restarted")
	}
	l := r.listen()
	r.address = l.Addr().(*net.UDPAddr).String()
	r.start(l)
}
