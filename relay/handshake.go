package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// newcomer is a peer that has proven a key and waits for the decision.
type newcomer struct {
	stream  wire.Stream
	pending *noiseconn.Pending
	hello   *wire.HopHello
	key     keys.PublicKey
	member  keys.Member
	next    *keys.PrivateKey // the relay key that this peer does not know yet
}

// rejection is why a connection was not admitted: for the peer, and for the metric.
type rejection struct {
	role   string
	result string
	err    *wire.Error
	proven *newcomer // not nil: the peer can be told in a record
	stream wire.Stream
}

// greetAside is greet on a goroutine of its own: the handshake's arithmetic needs a large stack, which would stay with the
// connection for as long as it lives.
func (s *Server) greetAside(ctx context.Context, t wire.Transport) (n *newcomer, rejected *rejection) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		n, rejected = s.greet(ctx, t)
	}()
	<-done
	return n, rejected
}

// greet runs the hop handshake on the transport's first stream: nothing else is accepted
// before the third message has proven the peer's key. The whole takes HopTimeout at most.
func (s *Server) greet(ctx context.Context, t wire.Transport) (*newcomer, *rejection) {
	ctx, cancel := context.WithTimeout(ctx, wire.HopTimeout)
	defer cancel()
	stream, err := t.AcceptStream(ctx)
	if err != nil {
		return nil, failedHandshake(ctx, nil, err)
	}
	current, next := s.keys()
	pending, err := noiseconn.Accept(ctx, stream, noiseconn.ResponderConfig{
		Static: current, Next: next, Prologue: noiseconn.HopPrologue(t.Binding()),
	})
	if err != nil {
		return nil, failedHandshake(ctx, stream, err)
	}
	n := &newcomer{stream: stream, pending: pending}
	if next != nil && pending.Local() == current.Public() {
		n.next = next
	}
	n.hello, err = wire.DecodeAs[*wire.HopHello](pending.Hello())
	if err != nil {
		return nil, n.reject(resultError, wire.Errorf(wire.CodeProtocol, "hello: %v", err))
	}
	if n.key, err = keys.NewPublicKey(kindOf(n.hello.Role), pending.Peer()); err != nil {
		return nil, n.reject(resultError, wire.Errorf(wire.CodeProtocol, "hello: %v", err))
	}
	if !n.hello.Versions.Agrees(wire.Versions, wire.Version) {
		return nil, n.reject(resultVersion, wire.Errorf(wire.CodeVersion,
			"relay speaks wire versions %d to %d, this peer %d to %d: update the older one",
			wire.Versions.Min, wire.Versions.Max, n.hello.Versions.Min, n.hello.Versions.Max))
	}
	if s.draining.Load() {
		return nil, n.reject(resultError, goingAway())
	}
	if n.hello.Join != nil {
		if rejected := s.join(n); rejected != nil {
			return nil, rejected
		}
	} else {
		var ok bool
		if n.member, ok = s.roster.Current().Lookup(n.key); !ok {
			return nil, n.reject(resultUnknownKey, unauthorized())
		}
	}
	if !s.keyPaces.handshake(n.key.String(), s.limits.KeyHandshakes) {
		s.metrics.limited.WithLabelValues(limitKeyHandshakes).Inc()
		return nil, n.reject(resultLimited, busy("this key connects too often"))
	}
	if !s.paces.handshake(n.member.Tenant, s.tenantLimits(n.member.Tenant).Handshakes) {
		s.metrics.limited.WithLabelValues(limitTenantHandshakes).Inc()
		return nil, n.reject(resultLimited, busy("the members of this tenant connect too often"))
	}
	return n, nil
}

// join admits an executor by its token.
func (s *Server) join(n *newcomer) *rejection {
	member, result, refusal := s.roster.Join(n.key, n.hello.Name, n.hello.Join)
	s.metrics.joins.WithLabelValues(string(result)).Inc()
	token := keys.TokenID(n.hello.Join.Token)
	if refusal != nil {
		// Somebody who may be a thief, or the machine that a thief was faster than: for people to look at.
		s.log.Warn("a machine could not join", "result", string(result), "token", token, "peer", n.key, "wanted", n.hello.Name)
		return n.reject(resultJoin, refusal)
	}
	if result == roster.Joined {
		s.log.Info("a machine has joined", "token", token, "peer", n.key, "tenant", member.Tenant, "name", member.Name)
	}
	n.member = member
	return nil
}

func kindOf(r wire.Role) keys.Kind {
	switch r {
	case wire.RoleExecutor:
		return keys.Executor
	case wire.RoleClient:
		return keys.Client
	}
	return "" // NewPublicKey refuses it
}

func unauthorized() *wire.Error {
	return wire.Errorf(wire.CodeUnauthorized, "this relay does not admit this key: its operator has to list it")
}

func (n *newcomer) reject(result string, err *wire.Error) *rejection {
	role := roleUnknown
	if n.hello != nil {
		role = roleName(n.hello.Role)
	}
	return &rejection{role: role, result: result, err: err, proven: n, stream: n.stream}
}

// failedHandshake sorts what went wrong before there was a proven peer.
func failedHandshake(ctx context.Context, stream wire.Stream, err error) *rejection {
	r := &rejection{role: roleUnknown, stream: stream}
	e, isCode := errors.AsType[*wire.Error](err)
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		r.result, r.err = resultTimeout, wire.Errorf(wire.CodeTimeout, "hop handshake took more than %v", wire.HopTimeout)
	case ctx.Err() != nil:
		r.result, r.err = resultError, goingAway()
	case errors.Is(err, wire.ErrLost):
		r.result, r.err = resultError, wire.Errorf(wire.CodeUnknown, "connection was lost in the handshake")
	case isCode && e.Code == wire.CodeVersion:
		r.result, r.err = resultVersion, e
	case isCode && e.Code != wire.CodeProtocol: // the peer gave up
		r.result, r.err = resultError, e
	default: // the details would help only an attacker
		r.result = resultBadAuth
		r.err = wire.Errorf(wire.CodeProtocol, "hop handshake failed: is the relay's key still the one in the URL?")
	}
	return r
}

func goingAway() *wire.Error {
	return wire.Errorf(wire.CodeShutdown, "relay is shutting down")
}

// lingerTimeout is how long a refused peer has to read why. Closing a connection drops
// what is on its way, so the relay waits for the peer to go first.
const lingerTimeout = time.Second

// refuse tells the peer why, if it can be told, and closes the transport.
func (s *Server) refuse(t wire.Transport, r *rejection) {
	s.metrics.handshakes.WithLabelValues(r.role, r.result).Inc()
	s.metrics.refusals.WithLabelValues(codeName(r.err.Code)).Inc()
	if r.stream != nil {
		deadline := time.Now().Add(lingerTimeout)
		_ = r.stream.SetWriteDeadline(deadline)
		_ = r.stream.SetReadDeadline(deadline)
		told := r.err.Code == wire.CodeVersion // said without proof by the handshake itself
		if r.proven != nil {
			told = r.proven.pending.Refuse(r.err) == nil
		}
		if told {
			// What the peer still sends is of no interest; that it ends is.
			_, _ = io.Copy(io.Discard, r.stream)
		}
	}
	_ = t.Close(r.err.Code, r.err.Text)
}
