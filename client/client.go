package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// Config says who the client is and which relay it uses.
type Config struct {
	Key   *keys.PrivateKey
	Relay keys.RelayURL
	// Connect makes a connection to the relay. Nil: QUIC to Relay's address.
	Connect  func(context.Context) (wire.Transport, error)
	Software string
	Log      *slog.Logger    // nil: nothing
	Clock    noiseconn.Clock // nil: the boot clock
	// Patience is how long a lost exec is tried to be reached again; see RemoteConfig. Zero:
	// DefaultPatience. Negative: not at all.
	Patience time.Duration
	// Interrupted is told when an exec's link is lost and when it is back; see RemoteConfig. Calls
	// about different executors may come at the same time. Nil: nobody is told.
	Interrupted func(Interruption)
	// Observer is told what happens, for metrics. Nil: nobody is told.
	Observer Observer
	// Agent, if not nil, is asked for circuits and sessions before the Client connects by itself.
	Agent Agent
	// RelayKeyReplaced is told that the relay replaces its key, by the old key itself: it is the moment to pin
	// next instead. The Client's later connections want next, and never the old one again. Told once
	// for each pair, one after the other. Nil: nobody is told.
	RelayKeyReplaced func(old, next keys.PublicKey)
	// ExecutorKeyReplaced is told that an executor replaces its key; see RemoteConfig. Calls about different
	// executors may come at the same time. Nil: nobody is told.
	//
	// Both are called from goroutines that hold no locks, and may use the Client. Close waits at most 5
	// seconds for a call that is under way, so one that calls Close is waited for in vain.
	ExecutorKeyReplaced func(old, next keys.PublicKey)
}

// Client is one key at one relay. It is safe for concurrent use. Close it.
type Client struct {
	cfg  Config
	link *link

	mu      sync.Mutex
	remotes map[keys.PublicKey]*Remote
}

// New checks the configuration and connects to nothing yet.
func New(cfg Config) (*Client, error) {
	switch {
	case cfg.Key == nil || cfg.Key.Kind() != keys.Client:
		return nil, errors.New("client: no client key")
	case cfg.Relay.Key.IsZero():
		return nil, errors.New("client: no relay key")
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Connect == nil {
		cfg.Connect = func(ctx context.Context) (wire.Transport, error) {
			return quicconn.Dial(ctx, cfg.Relay.Address(), quicconn.Options{Role: wire.RoleClient})
		}
	}
	return &Client{cfg: cfg, link: newLink(cfg), remotes: make(map[keys.PublicKey]*Remote)}, nil
}

// Dial is New, and connects to the relay, so that a wrong address or key shows at once.
// The context bounds the call.
func Dial(ctx context.Context, cfg Config) (*Client, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	if _, err := c.link.hop(ctx); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Executor is the backend of one executor, which must have this key. Nothing is sent
// until it is used. The same key gives the same Remote.
func (c *Client) Executor(key keys.PublicKey) *Remote {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.remotes[key]
	if r == nil {
		r = NewRemote(RemoteConfig{
			Key: c.cfg.Key, Executor: key, Software: c.cfg.Software, Clock: c.cfg.Clock,
			Patience: c.cfg.Patience, Interrupted: c.cfg.Interrupted, Observer: c.cfg.Observer,
			OpenCircuit:   func(ctx context.Context) (wire.Stream, error) { return c.openCircuit(ctx, key) },
			Borrow:        c.borrow(key),
			OpenCircuitTo: c.link.openCircuit, Log: c.cfg.Log, ExecutorKeyReplaced: c.cfg.ExecutorKeyReplaced,
		})
		c.remotes[key] = r
	}
	return r
}

// openCircuit makes a stream through the agent, or, where there is none or it fails, over the own connection.
func (c *Client) openCircuit(ctx context.Context, executor keys.PublicKey) (wire.Stream, error) {
	if c.cfg.Agent != nil {
		s, err := c.cfg.Agent.OpenCircuit(ctx, executor)
		if err == nil {
			return &circuit{Stream: s}, nil
		}
		c.cfg.Log.Debug("no circuit from the agent", "err", err)
	}
	return c.link.openCircuit(ctx, executor)
}

// borrow is RemoteConfig.Borrow for an executor; nil without an agent.
func (c *Client) borrow(executor keys.PublicKey) func(context.Context, wire.ID) (Loan, error) {
	if c.cfg.Agent == nil {
		return nil
	}
	return func(ctx context.Context, not wire.ID) (Loan, error) { return c.cfg.Agent.Borrow(ctx, executor, not) }
}

// Circuit makes a stream to an executor for whoever speaks with it: the relay's answer comes first on it, then what the
// executor says. The caller ends it.
func (c *Client) Circuit(ctx context.Context, executor keys.PublicKey) (wire.Stream, error) {
	s, err := c.link.openCircuit(ctx, executor)
	if err != nil {
		return nil, err
	}
	return s.(*circuit).Stream, nil
}

// Close ends the connection and every handle on it. Commands go on until their detach
// grace runs out. News about a key that is on its way may delay it by 5 seconds at most.
func (c *Client) Close() error {
	until := time.Now().Add(lingerAtMost) // for all together
	c.mu.Lock()
	remotes := c.remotes
	c.remotes = make(map[keys.PublicKey]*Remote)
	c.mu.Unlock()
	var closing sync.WaitGroup
	for _, r := range remotes {
		closing.Go(func() { r.close(until) })
	}
	closing.Wait()
	c.link.close(until)
	return nil
}
