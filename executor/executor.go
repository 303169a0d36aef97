package executor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// Config says who the executor is, how it reaches its relay and who may use it.
type Config struct {
	Key   *keys.PrivateKey
	Name  string         // wanted at the relay
	Relay keys.PublicKey // pinned
	// Dial makes one connection to the relay; it is called again whenever one is lost.
	Dial func(context.Context) (wire.Transport, error)
	// Clients is the authorized_clients file as it is now. Nil, or a nil result: nobody.
	Clients func() *keys.AuthorizedClients
	Backend *Local
	// Registered, if not nil, is called after each registration.
	Registered func(wire.HopWelcome)
	// RelayKeyReplaced, if not nil, is called when the relay has announced its next key, which is
	// pinned from then on: whoever starts the executor again has to give that one.
	RelayKeyReplaced func(old, next keys.PublicKey)
	// Next is the key that is going to replace Key, and Previous the one that Key is going to replace: clients
	// are told. They are asked at each handshake; nil or a zero key: none.
	Next, Previous func() keys.PublicKey
	// Backoff between attempts; the zero value is for production.
	Backoff  quicconn.Backoff
	Software string
	Metrics  *Metrics        // nil: nothing is counted
	Log      *slog.Logger    // nil: nothing
	Clock    noiseconn.Clock // nil: the boot clock
	// Now is the wall clock, by which lines of Clients expire; nil: time.Now.
	Now func() time.Time
}

// Executor serves clients through a relay. Make it with New.
type Executor struct {
	cfg      Config
	instance wire.ID
	sessions *sessions
	// listChanged tells Run that the next expiry may be another one.
	listChanged chan struct{}
	registered  registered

	lost time.Time // when the last registration ended; of Run's goroutine

	pin relayPin

	pendingMu sync.Mutex
	pending   map[[32]byte]int // handshakes by the client key that the relay reported
	total     int
}

// Handshakes that may be under way at once. A flood from one client leaves room for others, and
// costs it streams, never the connection to the relay.
const (
	maxPending          = 256
	maxPendingPerClient = 128
)

// New checks the configuration.
func New(cfg Config) (*Executor, error) {
	switch {
	case cfg.Key == nil || cfg.Key.Kind() != keys.Executor:
		return nil, errors.New("executor: no executor key")
	case cfg.Backend == nil:
		return nil, errors.New("executor: no backend")
	}
	if cfg.Clients == nil {
		cfg.Clients = func() *keys.AuthorizedClients { return nil }
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Executor{
		listChanged: make(chan struct{}, 1),
		cfg:         cfg, pin: relayPin{key: cfg.Relay}, instance: wire.ID(wire.NewExecID()),
		sessions: newSessions(), pending: make(map[[32]byte]int),
	}, nil
}

// Run keeps the executor registered until ctx ends, and returns ctx's cause when every circuit
// has ended. No refusal makes it give up: whoever can lift it may do so later. Running
// commands are not touched; they are the backend's.
func (e *Executor) Run(ctx context.Context) error {
	if e.cfg.Dial == nil || e.cfg.Relay.IsZero() {
		return errors.New("executor: no relay")
	}
	backoff := e.cfg.Backoff
	backoff.Waiting = func(cause error, wait time.Duration) {
		e.cfg.Log.Warn("not registered", "err", cause, "retry_in", wait.Round(time.Millisecond))
	}
	e.cfg.Backend.table.needRelay() // before the first registration nobody can come
	sweeping := time.NewTicker(sweepIdle)
	defer sweeping.Stop()
	var sweeper sync.WaitGroup
	defer sweeper.Wait()
	ended, end := context.WithCancel(ctx)
	defer end()
	sweeper.Go(func() {
		for {
			select {
			case <-sweeping.C:
				e.cfg.Backend.table.sweepNow()
			case <-ended.Done():
				return
			}
		}
	})
	sweeper.Go(func() { e.endExpired(ended) })
	return quicconn.Redial(ctx, backoff, e.connect)
}

// Settle waits until no client has a conversation open, or until ctx ends: who ends the
// commands before the connection gives their exit status time to arrive.
func (e *Executor) Settle(ctx context.Context) {
	select {
	case <-e.sessions.settled():
	case <-ctx.Done():
	}
}

// ServeCircuit serves what one client begins on s, and returns when it is over. hint is
// the client key that the relay saw; it only spreads limits. The stream is the caller's
// until then, and of no use afterwards.
func (e *Executor) ServeCircuit(ctx context.Context, s wire.Stream, hint [32]byte) error {
	stop := context.AfterFunc(ctx, func() { s.Reset(wire.CodeShutdown) })
	defer stop()
	if !e.enter(hint) {
		s.Reset(wire.CodeBusy)
		return errors.New("too many handshakes under way")
	}
	conn, session, err := e.accept(ctx, s)
	e.leave(hint)
	if err != nil {
		finish(s, endCode(err))
		return err
	}
	if conn == nil { // refused, in Noise
		e.cfg.Metrics.notAdmitted()
		finish(s, wire.CodeUnauthorized)
		return nil
	}
	c := newConversation(conn, session, func() (*Local, error) {
		caller, err := e.caller(session.client)
		return e.cfg.Backend.As(caller), err
	})
	e.sessions.enter(session, c)
	e.cfg.Metrics.conversation(+1)
	err = c.serve(ctx)
	e.sessions.leave(session, c)
	e.cfg.Metrics.conversation(-1)
	if err != nil {
		s.Reset(endCode(err))
		return err
	}
	finish(s, wire.CodeCancelled)
	return nil
}

// finish lets the peer read what was written last: it waits a little for the peer to end its
// side, then makes sure that the stream is over.
func finish(s wire.Stream, code wire.Code) {
	s.CloseWrite()
	s.SetReadDeadline(time.Now().Add(wire.HeaderTimeout))
	var buf [512]byte
	for {
		if _, err := s.Read(buf[:]); err != nil {
			break
		}
	}
	s.Reset(code)
}

// accept ends in an admitted client's channel and its session, or in a refusal, where it
// returns no connection.
func (e *Executor) accept(ctx context.Context, s wire.Stream) (*noiseconn.Conn, *session, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	cfg := noiseconn.ResponderConfig{Static: e.cfg.Key, Prologue: noiseconn.EndToEndPrologue(), Epoch: e.cfg.Backend.Epoch(), Clock: e.cfg.Clock}
	in, err := noiseconn.AcceptAny(ctx, s, cfg, e.sessions.lookup)
	if err != nil {
		return nil, nil, err
	}
	if in.Conn != nil {
		session := e.sessions.find(in.Session.ID())
		if session == nil { // dropped this very moment
			return nil, nil, &wire.Error{Code: wire.CodeNoChannel}
		}
		return in.Conn, session, nil
	}
	conn, session, err := e.admit(in.Pending)
	if refusal, ok := err.(*wire.Error); ok { // a decision, and not the end of the stream
		e.cfg.Log.Info("client refused", "code", refusal.Code, "err", refusal)
		return nil, nil, in.Pending.Refuse(refusal)
	}
	return conn, session, err
}

// admit decides on a client that has proven its key.
func (e *Executor) admit(p *noiseconn.Pending) (*noiseconn.Conn, *session, error) {
	client, err := keys.NewPublicKey(keys.Client, p.Peer())
	if err != nil {
		return nil, nil, wire.Errorf(wire.CodeUnauthorized, "no valid client key")
	}
	hello, err := wire.DecodeAs[*wire.Hello](p.Hello())
	if err != nil {
		return nil, nil, wire.Errorf(wire.CodeProtocol, "%v", err)
	}
	if !hello.Versions.Agrees(wire.Versions, wire.Version) {
		return nil, nil, wire.Errorf(wire.CodeVersion, "this executor speaks wire versions %d to %d, the client %d to %d",
			wire.Versions.Min, wire.Versions.Max, hello.Versions.Min, hello.Versions.Max)
	}
	caller, err := e.caller(client)
	if err != nil {
		return nil, nil, err
	}
	welcome := &wire.Welcome{
		Versions: wire.Versions, Session: wire.ID(wire.NewExecID()),
		Limits: e.cfg.Backend.table.cfg.limits(caller.Rights),
	}
	welcome.Next, welcome.Previous = announced(e.cfg.Next), announced(e.cfg.Previous)
	rand.Read(welcome.Random[:])
	ns, err := p.NewSession(hello, welcome)
	if err != nil {
		return nil, nil, err
	}
	s := &session{Session: ns, client: client, used: ns.Clock()}
	if err := e.sessions.add(s, hello.Replaces); err != nil {
		return nil, nil, err
	}
	conn, err := p.Accept(welcome)
	if err != nil {
		e.sessions.remove(s)
		return nil, nil, fmt.Errorf("welcome: %w", err)
	}
	return conn, s, nil
}

// caller is on whose behalf a client with this key acts, and with which rights, by the file and the time as they are now. Its
// answer must not be kept for later. Beside an error it is a caller that may do nothing.
func (e *Executor) caller(client keys.PublicKey) (Caller, error) {
	line, ok := e.cfg.Clients().Lookup(client)
	switch {
	case !ok:
		return Caller{}, wire.Errorf(wire.CodeUnauthorized, "this executor's authorized_clients does not list the key %s", client)
	case line.Expired(e.now()):
		return Caller{}, wire.Errorf(wire.CodeUnauthorized, "this executor's authorized_clients lists the key %s only until %s, which has passed",
			client, line.Expires.Format(time.RFC3339))
	}
	c := Caller{Principal: client.String(), Key: client.String(), ViewAll: line.ViewAll, ControlAll: line.ControlAll, Rights: line.Rights}
	if line.As != "" {
		c.Principal = line.As
	}
	return c, nil
}

func (e *Executor) authorized(client keys.PublicKey) error {
	_, err := e.caller(client)
	return err
}

// Recheck ends the sessions of clients that are not allowed any more, and what their keys
// started, whoever else shares their principal. Call it when the file has changed; what expires Run ends by itself.
func (e *Executor) Recheck() {
	e.recheck()
	select {
	case e.listChanged <- struct{}{}:
	default:
	}
}

func (e *Executor) recheck() {
	conversations, clients := e.sessions.revoke(func(k keys.PublicKey) bool { return e.authorized(k) == nil })
	for _, c := range conversations {
		c.end(wire.Errorf(wire.CodeRevoked, "this client's key was removed, or its time is over"))
	}
	for _, k := range clients {
		e.cfg.Log.Info("client removed or expired", "peer", k)
	}
	e.cfg.Backend.table.endUnauthorized(e.admitted, wire.CauseRevoked)
}

// admitted is authorized for a key as it was recorded.
func (e *Executor) admitted(key string) bool {
	k, err := keys.ParsePublicKey(key)
	return err == nil && e.authorized(k) == nil
}

func (e *Executor) enter(hint [32]byte) bool {
	e.pendingMu.Lock()
	defer e.pendingMu.Unlock()
	if e.total >= maxPending || e.pending[hint] >= maxPendingPerClient {
		return false
	}
	e.total++
	e.pending[hint]++
	return true
}

func (e *Executor) leave(hint [32]byte) {
	e.pendingMu.Lock()
	defer e.pendingMu.Unlock()
	e.total--
	if e.pending[hint]--; e.pending[hint] == 0 {
		delete(e.pending, hint)
	}
}
