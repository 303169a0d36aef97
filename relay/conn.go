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
	mine      *registration  // of an executor, once it is registered
	streams   sync.WaitGroup // goroutines beside the control loop

	sampled sampled
	control *noiseconn.Conn // for others once ready is closed
	ready   chan struct{}

	mu    sync.Mutex
	pings map[uint64]chan struct{} // closed by the answer
	over  bool                     // streams is waited for: others start nothing here any more
}

// serveTransport takes a transport from accept to its end and returns when nothing of it
// is left. What it and its callees have on the stack while they wait stays there for as long as the connection
// lives, so whatever is done only once is done in functions that return: admit, begin, end.
func (s *Server) serveTransport(ctx context.Context, t wire.Transport) {
	goodbye := goingAway()
	stop := context.AfterFunc(ctx, func() { _ = t.Close(goodbye.Code, goodbye.Text) })
	defer stop()
	c := s.admit(ctx, t)
	if c == nil {
		return
	}
	defer c.withdraw()
	c.begin(ctx)
	c.end(ctx, c.converse())
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

// begin makes the server know an admitted connection, and handles the streams that its peer opens. The control
// loop is the caller's.
func (c *conn) begin(ctx context.Context) {
	s := c.server
	s.add(c)
	s.metrics.connections.WithLabelValues(roleName(c.role)).Inc()
	c.log.Info("peer connected")
	// The roster may have changed between the look-up and add; from here on Recheck sees c.
	if !c.admittedBy(s.roster.Current()) {
		c.revoke()
	}
	if s.draining.Load() { // the drain may have begun just before add, and has not seen c
		c.goaway(spread(len(s.admitted())))
	}
	c.tellNextKey(c.told)
	if c.role == wire.RoleExecutor {
		c.streams.Go(func() { c.acceptRequests(ctx) })
	} else {
		c.streams.Go(func() { c.acceptCircuits(ctx) })
	}
}

// end closes the connection, and returns when its goroutines have ended with it.
func (c *conn) end(ctx context.Context, reason *wire.Error) {
	s := c.server
	c.close(reason)
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.streams.Wait()
	s.metrics.connections.WithLabelValues(roleName(c.role)).Dec()
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
