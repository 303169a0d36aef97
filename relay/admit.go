package relay

import (
	"context"
	"time"

	"github.com/postern-relay/postern/wire"
)

// admit takes a transport to the welcome of its peer. When it returns nil the peer was refused.
func (s *Server) admit(ctx context.Context, t wire.Transport) *conn {
	select {
	case s.handshakes <- struct{}{}:
	default:
		s.metrics.limited.WithLabelValues(limitHandshakes).Inc()
		s.refuse(t, &rejection{role: roleUnknown, result: resultLimited, err: busy("relay has too many handshakes in flight: try again")})
		return nil
	}
	begun := time.Now()
	s.metrics.inFlight.Inc()
	defer func() {
		s.metrics.inFlight.Dec()
		<-s.handshakes
	}()
	n, rejected := s.greetAside(ctx, t)
	if rejected != nil {
		s.logRejection(rejected)
		if p, ok := t.(interface{ Penalise(wire.Code) }); ok && rejected.result == resultBadAuth {
			p.Penalise(rejected.err.Code) // its address has waited for a TLS handshake, so it is no forgery
		}
		s.refuse(t, rejected)
		return nil
	}
	tenant, limits := n.member.Tenant, s.tenantLimits(n.member.Tenant)
	if !s.perKey.take(n.key, s.limits.connections(n.key.Kind())) {
		s.refuseLimited(t, n, limitKeyConnections, "this key has too many connections here")
		return nil
	}
	if !s.perTenant.take(tenant, orNone(limits.Connections)) {
		s.refuseLimited(t, n, limitTenantConnections, "this tenant has too many connections here")
		s.perKey.release(n.key)
		return nil
	}
	c := &conn{
		server: s, transport: t, begun: begun, pinned: n.pending.Local(), told: n.next, key: n.key, follows: n.member.Follows, name: n.member.Name, tenant: tenant, role: n.hello.Role,
		log:   s.log.With("peer", n.key, "tenant", tenant, "name", n.member.Name, "role", roleName(n.hello.Role)),
		pings: make(map[uint64]chan struct{}),
		ready: make(chan struct{}),
	}
	welcome := false
	if c.role == wire.RoleExecutor {
		welcome = c.register(ctx, n) && c.welcome(n, c.mine.generation)
	} else {
		welcome = c.welcome(n, 0)
	}
	if !welcome {
		c.withdraw()
		return nil
	}
	return c
}

// withdraw gives back what admit has taken, after the end of the connection.
func (c *conn) withdraw() {
	if c.mine != nil {
		c.server.registry.remove(c.mine)
	}
	c.streams.Wait()
	c.server.perTenant.release(c.tenant)
	c.server.perKey.release(c.key)
}

func (s *Server) logRejection(r *rejection) {
	if r.proven == nil { // anybody can cause these
		s.log.Debug("handshake failed", "result", r.result, "err", r.err)
		return
	}
	s.log.Info("peer refused", "peer", r.proven.key, "role", r.role, "code", r.err.Code, "err", r.err)
}

// register makes the newcomer the one that dials reach, or refuses it. It is registered when it reads its
// welcome: whoever it tells can dial it at once.
func (c *conn) register(ctx context.Context, n *newcomer) bool {
	s := c.server
	mine, foreign := s.registry.claim(c, n.hello.Instance)
	if foreign != nil && foreign.conn.alive(ctx) {
		foreign.conn.warn(duplicate())
		c.refuseExecutor(n, duplicate())
		return false
	}
	replaced, stale, lost := s.registry.install(mine, foreign, orNone(s.tenantLimits(c.tenant).Executors))
	if lost != nil {
		c.refuseExecutor(n, lost)
		return false
	}
	c.mine = mine
	// Not waited for here: a half-dead connection must not delay the live one.
	if replaced != nil {
		c.log.Info("executor connection superseded")
		c.streams.Go(replaced.supersede)
	}
	if stale != nil {
		c.streams.Go(func() { stale.close(superseded()) })
	}
	return true
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

// refuseLimited refuses a proven peer because of a limit.
func (s *Server) refuseLimited(t wire.Transport, n *newcomer, limit, text string) {
	s.metrics.limited.WithLabelValues(limit).Inc()
	s.refuse(t, n.reject(resultLimited, busy(text)))
}
