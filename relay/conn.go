package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// conn is one admitted connection.
type conn struct {
	server    *Server
	transport wire.Transport
	begun     time.Time        // its handshake
	pinned    keys.PublicKey   // the relay's key, as this peer has it
	told      *keys.PrivateKey // the next one, as its welcome has it; nil: none
	key       keys.PublicKey
	follows   keys.PublicKey // the key that it is going to replace; zero: none
	name      string
	tenant    string
	role      wire.Role
	log       *slog.Logger
	circuits  atomic.Int64   // on an executor's connection
	replaced  atomic.Bool    // by a newer one: it ends with its last circuit
	warned    atomic.Int64   // when it was last told of a second machine, Unix seconds
	leaving   atomic.Bool    // it was told that the relay goes away
	streams   sync.WaitGroup // goroutines beside the control loop

	sampled sampled
	control *noiseconn.Conn // for others once ready is closed
	ready   chan struct{}

	mu    sync.Mutex
	pings map[uint64]chan struct{} // closed by the answer
	over  bool                     // streams is waited for: others start nothing here any more
}

// serveTransport takes a transport from accept to its end and returns when nothing of it
// is left.
func (s *Server) serveTransport(ctx context.Context, t wire.Transport) {
	goodbye := goingAway()
	stop := context.AfterFunc(ctx, func() { _ = t.Close(goodbye.Code, goodbye.Text) })
	defer stop()
	select {
	case s.handshakes <- struct{}{}:
	default:
		s.metrics.limited.WithLabelValues(limitHandshakes).Inc()
		s.refuse(t, &rejection{role: roleUnknown, result: resultLimited, err: busy("relay has too many handshakes in flight: try again")})
		return
	}
	begun := time.Now()
	s.metrics.inFlight.Inc()
	var once sync.Once
	arrived := func() {
		once.Do(func() {
			s.metrics.inFlight.Dec()
			<-s.handshakes
		})
	}
	defer arrived()
	n, rejected := s.greetAside(ctx, t)
	if rejected != nil {
		s.logRejection(rejected)
		if p, ok := t.(interface{ Penalise(wire.Code) }); ok && rejected.result == resultBadAuth {
			p.Penalise(rejected.err.Code) // its address has waited for a TLS handshake, so it is no forgery
		}
		s.refuse(t, rejected)
		return
	}
	tenant, limits := n.member.Tenant, s.tenantLimits(n.member.Tenant)
	if !s.perKey.take(n.key, s.limits.connections(n.key.Kind())) {
		s.refuseLimited(t, n, limitKeyConnections, "this key has too many connections here")
		return
	}
	defer s.perKey.release(n.key)
	if !s.perTenant.take(tenant, orNone(limits.Connections)) {
		s.refuseLimited(t, n, limitTenantConnections, "this tenant has too many connections here")
		return
	}
	defer s.perTenant.release(tenant)
	c := &conn{
		server: s, transport: t, begun: begun, pinned: n.pending.Local(), told: n.next, key: n.key, follows: n.member.Follows, name: n.member.Name, tenant: tenant, role: n.hello.Role,
		log:   s.log.With("peer", n.key, "tenant", tenant, "name", n.member.Name, "role", roleName(n.hello.Role)),
		pings: make(map[uint64]chan struct{}),
		ready: make(chan struct{}),
	}
	if c.role == wire.RoleExecutor {
		c.serveExecutor(ctx, n, arrived)
	} else if c.welcome(n, 0) {
		arrived()
		c.serve(ctx, c.acceptCircuits)
	}
}

func (s *Server) logRejection(r *rejection) {
	if r.proven == nil { // anybody can cause these
		s.log.Debug("handshake failed", "result", r.result, "err", r.err)
		return
	}
	s.log.Info("peer refused", "peer", r.proven.key, "role", r.role, "code", r.err.Code, "err", r.err)
}

// serveExecutor registers the newcomer and serves it. It is registered when it reads its
// welcome: whoever it tells can dial it at once.
func (c *conn) serveExecutor(ctx context.Context, n *newcomer, arrived func()) {
	s := c.server
	defer c.streams.Wait()
	mine, foreign := s.registry.claim(c, n.hello.Instance)
	if foreign != nil && foreign.conn.alive(ctx) {
		foreign.conn.warn(duplicate())
		c.refuseExecutor(n, duplicate())
		return
	}
	replaced, stale, lost := s.registry.install(mine, foreign, orNone(s.tenantLimits(c.tenant).Executors))
	if lost != nil {
		c.refuseExecutor(n, lost)
		return
	}
	defer s.registry.remove(mine)
	// Not waited for here: a half-dead connection must not delay the live one.
	if replaced != nil {
		c.log.Info("executor connection superseded")
		c.streams.Go(replaced.supersede)
	}
	if stale != nil {
		c.streams.Go(func() { stale.close(superseded()) })
	}
	if !c.welcome(n, mine.generation) {
		return
	}
	arrived()
	c.serve(ctx, c.acceptRequests)
}

// supersede ends a connection that a newer one has replaced: at once, or with its last circuit. An
// executor that is still there may have bytes of one on their way.
func (c *conn) supersede() {
	c.replaced.Store(true)
	if c.circuits.Load() == 0 {
		c.close(superseded())
		return
	}
	c.notify(superseded())
}

// circuitEnded is called once for each circuit that was counted.
func (c *conn) circuitEnded() {
	if c.circuits.Add(-1) == 0 && c.replaced.Load() {
		// Closing drops what is on its way: the last bytes of the circuit get the time to arrive.
		time.AfterFunc(lingerTimeout, func() { c.close(superseded()) })
	}
}

// warnEvery is how often an executor is told that another machine uses its key.
const warnEvery = time.Minute

// warn tells the holder of a key about somebody who came with it too.
func (c *conn) warn(why *wire.Error) {
	now, last := time.Now().Unix(), c.warned.Load()
	if time.Duration(now-last)*time.Second >= warnEvery && c.warned.CompareAndSwap(last, now) {
		c.notify(why)
	}
}

// notify says something on the control stream from which nothing follows. A peer that takes nothing is not waited for.
func (c *conn) notify(why *wire.Error) { c.say(&wire.HopNotice{Code: why.Code, Text: why.Text}) }

// say sends a message on the control stream, of which nothing is expected.
func (c *conn) say(m wire.Message) {
	select {
	case <-c.ready:
	default: // not even welcome yet
		return
	}
	// Those who notify are other connections' goroutines, and c may be ending.
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.over {
		c.streams.Go(func() { _ = c.control.Send(m) })
	}
}

// refuseExecutor refuses one that the registry does not take.
func (c *conn) refuseExecutor(n *newcomer, why *wire.Error) {
	result := resultDuplicate
	switch why.Code {
	case wire.CodeDuplicate:
		c.server.metrics.duplicates.Inc()
		c.log.Warn("executor refused: another process uses its key and is alive", "code", why.Code)
	case wire.CodeBusy:
		result = resultLimited
		c.server.metrics.limited.WithLabelValues(limitTenantExecutors).Inc()
	}
	c.server.refuse(c.transport, n.reject(result, why))
}

// welcome admits the newcomer.
func (c *conn) welcome(n *newcomer, generation uint64) bool {
	s := c.server
	tenant := s.tenantLimits(c.tenant)
	limits := wire.HopLimits{Header: wire.MaxHeader, IdleMillis: uint64(wire.ExecutorIdle / time.Millisecond), BytesPerSecond: uint64(tenant.Bytes)}
	if c.role == wire.RoleClient {
		limits.Circuits = uint32(min(s.limits.ClientCircuits, orNone(tenant.Circuits)))
		limits.IdleMillis = uint64(wire.ClientIdle / time.Millisecond)
	}
	if err := n.stream.SetWriteDeadline(time.Now().Add(wire.HopTimeout)); err != nil {
		c.close(wire.Errorf(wire.CodeInternal, "deadline of the control stream"))
		return false
	}
	welcome := &wire.HopWelcome{
		Versions: wire.Versions, Connection: s.ids.Add(1), Tenant: c.tenant, Name: c.name, Generation: generation,
		Limits: limits, Time: time.Now().UnixMilli(),
	}
	if n.next != nil {
		key := wire.Bytes32(n.next.Public().Raw())
		welcome.NextRelay = &key
	}
	control, err := n.pending.Accept(welcome)
	if err == nil {
		err = n.stream.SetWriteDeadline(time.Time{})
	}
	if err != nil {
		s.metrics.handshakes.WithLabelValues(roleName(c.role), resultError).Inc()
		c.log.Debug("welcome not sent", "err", err)
		c.close(wire.Errorf(wire.CodeTimeout, "welcome was not taken"))
		return false
	}
	control.LimitMessages(wire.MaxHello) // an admitted peer has nothing long to say here either
	c.control = control
	close(c.ready)
	s.metrics.handshakes.WithLabelValues(roleName(c.role), resultOK).Inc()
	s.metrics.handshake.WithLabelValues(roleName(c.role)).Observe(time.Since(c.begun).Seconds())
	if a, ok := c.transport.(interface{ Admit() }); ok {
		a.Admit() // lifts the window for strangers
	}
	return true
}

// serve runs an admitted connection: streams handles those that the peer opens, and the
// control loop runs here. It returns when the connection has ended and its goroutines with
// it.
func (c *conn) serve(ctx context.Context, streams func(context.Context)) {
	s := c.server
	s.add(c)
	gauge := s.metrics.connections.WithLabelValues(roleName(c.role))
	gauge.Inc()
	c.log.Info("peer connected")
	// The roster may have changed between the look-up and add; from here on Recheck sees c.
	if !c.admittedBy(s.roster.Current()) {
		c.revoke()
	}
	if s.draining.Load() { // the drain may have begun just before add, and has not seen c
		c.goaway(spread(len(s.admitted())))
	}
	c.tellNextKey(c.told)
	c.streams.Go(func() { streams(ctx) })
	reason := c.converse()
	c.close(reason)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.streams.Wait()
	gauge.Dec()
	c.sample()
	cause := context.Cause(c.transport.Context())
	why := endOf(ctx, cause)
	s.metrics.disconnects.WithLabelValues(roleName(c.role), why).Inc()
	s.remove(c, Disconnect{At: time.Now().UTC(), Role: roleName(c.role), Reason: why})
	c.log.Info("peer disconnected", "code", reason.Code, "reason", why, "err", cause)
}

// endOf is the label value of why a connection has ended.
func endOf(serving context.Context, cause error) string {
	if errors.Is(cause, wire.ErrLost) {
		return endLost
	}
	switch wire.CodeOf(cause) {
	case wire.CodeSuperseded:
		return endSuperseded
	case wire.CodeUnauthorized, wire.CodeRevoked:
		return endRevoked
	case wire.CodeProtocol:
		return endProtocol
	case wire.CodeShutdown:
		if serving.Err() != nil {
			return endShutdown
		}
	}
	return endPeer
}

// refuseLimited refuses a proven peer because of a limit.
func (s *Server) refuseLimited(t wire.Transport, n *newcomer, limit, text string) {
	s.metrics.limited.WithLabelValues(limit).Inc()
	s.refuse(t, n.reject(resultLimited, busy(text)))
}

// converse answers the control stream until it ends, and says what to close with.
func (c *conn) converse() *wire.Error {
	for {
		m, err := c.control.Recv()
		if unsupported, ok := errors.AsType[*wire.UnsupportedError](err); ok {
			m, err = nil, c.control.Send(wire.Refusal(wire.Errorf(wire.CodeUnsupported, "%v", unsupported)))
		}
		switch {
		case err == io.EOF:
			return wire.Errorf(wire.CodeShutdown, "the peer ended its control stream")
		case err != nil && wire.CodeOf(err) == wire.CodeProtocol && !errors.Is(err, wire.ErrLost):
			return wire.Errorf(wire.CodeProtocol, "control stream: %v", err)
		case err != nil:
			return wire.Errorf(wire.CodeShutdown, "control stream is gone")
		}
		switch m := m.(type) {
		case nil:
		case *wire.HopPing:
			if err := c.control.Send(&wire.HopPong{Number: m.Number}); err != nil {
				return wire.Errorf(wire.CodeShutdown, "control stream is gone")
			}
		case *wire.HopPong:
			c.answered(m.Number)
		default:
			return wire.Errorf(wire.CodeProtocol, "a %T does not belong on the control stream", m)
		}
	}
}

// alive reports whether the peer answers a ping within wire.IncumbentTimeout. It closes
// the connection of one that does not.
func (c *conn) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, wire.IncumbentTimeout)
	defer cancel()
	select {
	case <-c.ready:
	case <-c.transport.Context().Done():
		return false
	case <-ctx.Done():
		c.close(superseded())
		return false
	}
	number := c.server.ids.Add(1)
	answer := make(chan struct{})
	c.mu.Lock()
	c.pings[number] = answer
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.pings, number)
		c.mu.Unlock()
	}()
	// Send blocks when the peer takes nothing, which is one way of being dead.
	var sending sync.WaitGroup
	sending.Go(func() { _ = c.control.Send(&wire.HopPing{Number: number}) })
	defer sending.Wait()
	select {
	case <-answer:
		return true
	case <-c.transport.Context().Done():
	case <-ctx.Done():
		c.close(superseded())
	}
	return false
}

func (c *conn) answered(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting := c.pings[number]; waiting != nil {
		close(waiting)
		delete(c.pings, number)
	}
}

// close ends the connection for a reason that the peer sees. The first reason counts.
func (c *conn) close(reason *wire.Error) { _ = c.transport.Close(reason.Code, reason.Text) }

// admittedBy reports whether the peer is still what it was when it was admitted.
func (c *conn) admittedBy(current *keys.Tenants) bool {
	m, ok := current.Lookup(c.key)
	return ok && m.Tenant == c.tenant && m.Name == c.name
}

func (c *conn) revoke() {
	c.log.Info("peer is not admitted any more", "code", wire.CodeUnauthorized)
	c.server.metrics.refusals.WithLabelValues(codeName(wire.CodeUnauthorized)).Inc()
	c.close(unauthorized())
}
