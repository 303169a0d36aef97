package relay

import (
	"context"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// requestNames are the label values of requests.
var requestNames = []string{"list_executors", "add_token", "remove_token", "list_tokens", "follow", "retire"}

// requestName is the label value of a request, "" for what is none.
func requestName(m wire.Message) string {
	switch m.(type) {
	case *wire.ListExecutors:
		return requestNames[0]
	case *wire.AddToken:
		return requestNames[1]
	case *wire.RemoveToken:
		return requestNames[2]
	case *wire.ListTokens:
		return requestNames[3]
	case *wire.Follow:
		return requestNames[4]
	case *wire.Retire:
		return requestNames[5]
	}
	return ""
}

// acceptRequests takes the streams that an executor opens, one after the other: it has little to ask.
func (c *conn) acceptRequests(ctx context.Context) {
	for {
		stream, err := c.transport.AcceptStream(ctx)
		if err != nil {
			return // the connection has ended
		}
		if m, ok := c.readFirst(stream); ok {
			c.serveRequest(stream, m)
		}
	}
}

// serveRequest answers what a member asks the relay itself. Who asks is looked up anew: the roster may have changed
// since the connection was made.
func (c *conn) serveRequest(stream wire.Stream, m wire.Message) {
	s := c.server
	member, ok := s.roster.Current().Lookup(c.key)
	if !ok {
		c.reply(stream, m, unauthorized())
		return
	}
	var refusal *wire.Error
	switch m := m.(type) {
	case *wire.ListExecutors, *wire.AddToken, *wire.RemoveToken, *wire.ListTokens:
		if c.role != wire.RoleClient {
			c.close(wire.Errorf(wire.CodeProtocol, "an executor does not send a %T", m))
			return
		}
		if err := c.serveClient(stream, member, m); err != nil {
			if refusal, ok = err.(*wire.Error); !ok {
				stream.Reset(wire.CodeTimeout) // it does not take the answer
				return
			}
		}
	case *wire.Follow:
		refusal = c.follow(member, m)
	case *wire.Retire:
		refusal = c.retire(member, m)
	default:
		c.close(wire.Errorf(wire.CodeProtocol, "a stream cannot begin with a %T", m))
		return
	}
	c.reply(stream, m, refusal)
}

// serveClient carries out a client's request and sends the items of the answer. An error of another type than
// *wire.Error means that they could not be sent.
func (c *conn) serveClient(stream wire.Stream, member keys.Member, m wire.Message) error {
	s := c.server
	var refusal *wire.Error
	switch m := m.(type) {
	case *wire.ListExecutors:
		return c.listExecutors(stream, member.Tenant)
	case *wire.ListTokens:
		return c.listTokens(stream, member.Tenant)
	case *wire.AddToken:
		if refusal = s.roster.AddToken(member, m); refusal == nil {
			c.log.Info("join token added", "token", keys.TokenID(m.ID), "names", m.Pattern, "uses", m.Uses, "ttl", m.TTL())
		}
	case *wire.RemoveToken:
		if refusal = s.roster.RemoveToken(member, keys.TokenID(m.ID)); refusal == nil {
			c.log.Info("join token removed", "token", keys.TokenID(m.ID))
		}
	}
	if refusal != nil {
		return refusal
	}
	return nil
}

// listExecutors sends the executors of the client's tenant, and of no other.
func (c *conn) listExecutors(stream wire.Stream, tenant string) error {
	s := c.server
	for _, m := range s.roster.Current().Members(tenant) {
		if m.Key.Kind() != keys.Executor {
			continue
		}
		item := &wire.ExecutorItem{Executor: m.Key.Raw(), Name: m.Name}
		online, seen := s.registry.presence(m.Key.Raw())
		if item.Online = online; !seen.IsZero() {
			item.Seen = seen.UnixMilli()
		}
		if !m.Token.IsZero() {
			token, mac := wire.ID(m.Token), wire.Bytes32(m.MAC)
			item.Token, item.MAC = &token, &mac
		}
		if !m.Follows.IsZero() {
			follows := wire.Bytes32(m.Follows.Raw())
			item.Follows = &follows
		}
		if err := writeFrame(stream, item); err != nil {
			return err
		}
	}
	return nil
}

// listTokens sends the tokens of the client's tenant.
func (c *conn) listTokens(stream wire.Stream, tenant string) error {
	for _, j := range c.server.roster.Current().Joins(tenant) {
		item := &wire.TokenItem{
			ID: wire.ID(j.ID), Pattern: j.Pattern, Uses: uint32(j.Uses), Used: uint32(j.Used),
			Expires: j.Expires.UnixMilli(), By: j.By.Raw(), Expired: !time.Now().Before(j.Expires),
		}
		if err := writeFrame(stream, item); err != nil {
			return err
		}
	}
	return nil
}

// follow admits the key that is going to replace the executor's.
func (c *conn) follow(member keys.Member, m *wire.Follow) *wire.Error {
	next, err := keys.NewPublicKey(keys.Executor, m.Executor)
	if c.role != wire.RoleExecutor || err != nil {
		return wire.Errorf(wire.CodeBadRequest, "only an executor has a key that others can follow")
	}
	refusal := c.server.roster.Follow(member, next)
	if refusal == nil {
		c.log.Info("executor is going to replace its key", "next", next)
		c.server.Recheck() // the key that was to replace it before
	}
	return refusal
}

// retire takes out the key that the executor's has replaced.
func (c *conn) retire(member keys.Member, m *wire.Retire) *wire.Error {
	old, err := keys.NewPublicKey(keys.Executor, m.Executor)
	if c.role != wire.RoleExecutor || err != nil {
		return wire.Errorf(wire.CodeBadRequest, "only an executor has a key that it follows")
	}
	refusal := c.server.roster.Retire(member, old)
	if refusal == nil {
		c.log.Info("executor has replaced its key", "old", old)
		c.server.Recheck()
	}
	return refusal
}

// reply ends the answer to a request, and the stream.
func (c *conn) reply(stream wire.Stream, m wire.Message, refusal *wire.Error) {
	s := c.server
	code := wire.Code(0)
	if refusal != nil {
		code = refusal.Code
		s.metrics.refusals.WithLabelValues(codeName(code)).Inc()
	}
	if name := requestName(m); name != "" {
		s.metrics.requests.WithLabelValues(name, codeName(code)).Inc()
	}
	if err := writeFrame(stream, wire.NewReply(refusal)); err == nil {
		_ = stream.CloseWrite()
	}
	if code == 0 {
		code = wire.CodeCancelled // for what the peer may still send
	}
	stream.Reset(code)
}
