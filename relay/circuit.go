package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/wire"
)

// acceptCircuits takes the streams that a client opens, each one a circuit to be, or a request.
func (c *conn) acceptCircuits(ctx context.Context) {
	s := c.server
	for {
		stream, err := c.transport.AcceptStream(ctx)
		if err != nil {
			return // the connection has ended
		}
		within := s.circuits.take(c.key, s.limits.ClientCircuits)
		c.streams.Go(func() {
			if within {
				defer s.circuits.release(c.key)
			}
			c.serveStream(ctx, stream, within)
		})
	}
}

// serveStream takes one stream of a client from its header to its end. One that is not
// within the limit is refused when its first frame was read: a stream that is stopped before
// makes the client's write fail, and it would not look for an answer.
func (c *conn) serveStream(ctx context.Context, stream wire.Stream, within bool) {
	m, ok := c.readFirst(stream)
	if !ok {
		return
	}
	dial, isDial := m.(*wire.Dial)
	switch {
	case isDial && within:
		c.serveCircuit(ctx, stream, dial)
	case isDial:
		c.limited(stream, limitKeyCircuits, "this key has too many circuits")
	case within:
		c.serveRequest(stream, m)
	default:
		s := c.server
		s.metrics.limited.WithLabelValues(limitKeyCircuits).Inc()
		c.reply(stream, m, busy("this key has too many circuits"))
	}
}

// readFirst reads a stream's first frame, or ends what has to be ended.
func (c *conn) readFirst(stream wire.Stream) (wire.Message, bool) {
	m, err := readHeader(stream)
	switch e, isCode := errors.AsType[*wire.Error](err); {
	case err == nil:
		return m, true
	case isCode && e.Code == wire.CodeProtocol:
		c.close(e)
	case isCode && e.Code == wire.CodeUnsupported:
		c.answerNo(stream, e)
	case isCode:
		stream.Reset(e.Code)
	default: // the peer gave up before it had said anything
		stream.Reset(wire.CodeCancelled)
	}
	return nil, false
}

// serveCircuit joins a client's stream with one to the executor that it asks for.
func (c *conn) serveCircuit(ctx context.Context, stream wire.Stream, dial *wire.Dial) {
	s, begun := c.server, time.Now()
	executor := s.registry.lookup(c.tenant, dial.Executor)
	if executor == nil {
		c.answerNo(stream, unreachable())
		return
	}
	s.circuitBegins() // and only then a look at the drain, which waits for all that it has not stopped
	defer s.circuitEnds()
	if s.draining.Load() {
		c.answerNo(stream, goingAway())
		return
	}
	tenant := s.tenantLimits(c.tenant)
	if !s.dialled.take(c.tenant, orNone(tenant.Circuits)) {
		c.limited(stream, limitTenantCircuits, "this tenant has too many circuits")
		return
	}
	defer s.dialled.release(c.tenant)
	defer executor.circuitEnded()
	if executor.circuits.Add(1) > int64(s.limits.ExecutorCircuits) {
		c.limited(stream, limitExecutorCircuits, "the executor has too many circuits")
		return
	}
	id := s.ids.Add(1)
	far, refusal := executor.openIncoming(ctx, &wire.Incoming{Circuit: id, Client: c.key.Raw()})
	if refusal != nil {
		c.answerNo(stream, refusal)
		return
	}
	if err := writeFrame(stream, &wire.DialReply{Circuit: id}); err != nil {
		stream.Reset(wire.CodeCancelled)
		far.Reset(wire.CodeCancelled)
		return
	}
	s.metrics.dials.WithLabelValues(resultOK).Inc()
	s.metrics.tenants.dial(c.tenant, dialOK)
	s.metrics.dial.Observe(time.Since(begun).Seconds())
	c.log.Debug("circuit opened", "circuit", id, "executor", executor.key)
	code := s.splice(c, executor, stream, far, id)
	c.log.Debug("circuit ended", "circuit", id, "executor", executor.key, "code", codeName(code))
}

// splice joins the two streams of a circuit until it has ended, and counts what it carries.
func (s *Server) splice(client, executor *conn, near, far wire.Stream, id uint64) wire.Code {
	m := s.newMeter(id, client, executor)
	up, down := s.metrics.bytes.WithLabelValues(toExecutor), s.metrics.bytes.WithLabelValues(toClient)
	tenantUp, tenantDown := s.metrics.tenants.carry(client.tenant)
	count := func(own *atomic.Uint64, all, tenant prometheus.Counter) func(int) {
		return func(n int) {
			own.Add(uint64(n))
			all.Add(float64(n))
			if tenant != nil {
				tenant.Add(float64(n))
			}
		}
	}
	held := func(limit string) func() { return s.metrics.limited.WithLabelValues(limit).Inc }
	sp := &splice{
		client: near, executor: far, stall: s.limits.Stall, backlogs: &s.backlogs,
		countUp: count(&m.up, up, tenantUp), countDown: count(&m.down, down, tenantDown),
		paces: []paced{
			{s.keyPaces.carry(client.key.String(), s.keyBytes), held(limitKeyBytes)},
			{s.paces.carry(client.tenant, s.tenantBytes), held(limitTenantBytes)},
		},
	}
	code := sp.run(client.transport.Context(), executor.transport.Context())
	if code == wire.CodeUnknown && client.hasLeft() {
		code = wire.CodeCancelled
	}
	m.end(codeName(code))
	s.metrics.circuit.Observe(time.Since(m.begun).Seconds())
	s.metrics.ends.WithLabelValues(codeName(code)).Inc()
	return code
}

// hasLeft reports whether the peer has ended its connection in order. A program does that right after the last thing
// it wanted, and the end of its streams gets lost on the way; for those who count, that is no lost peer.
func (c *conn) hasLeft() bool {
	cause := context.Cause(c.transport.Context())
	return wire.CodeOf(cause) == wire.CodeShutdown && !errors.Is(cause, wire.ErrLost) && !c.leaving.Load()
}

// limited refuses a dial because of a limit.
func (c *conn) limited(stream wire.Stream, limit, text string) {
	s := c.server
	s.metrics.limited.WithLabelValues(limit).Inc()
	c.answerNo(stream, busy(text))
}

// readHeader reads the first frame of a stream. Its errors are of three kinds: CodeProtocol for
// bytes that no peer of ours sends, another code for what ends this stream only, and
// none of ours when the stream broke.
func readHeader(stream wire.Stream) (wire.Message, error) {
	if err := stream.SetReadDeadline(time.Now().Add(wire.HeaderTimeout)); err != nil {
		return nil, err
	}
	m, err := wire.ReadFrame(&remember{stream: stream})
	broken, isBroken := errors.AsType[*brokenError](err)
	switch unsupported, isUnsupported := errors.AsType[*wire.UnsupportedError](err); {
	case isBroken && errors.Is(broken.err, os.ErrDeadlineExceeded):
		return nil, wire.Errorf(wire.CodeTimeout, "no first frame within %v", wire.HeaderTimeout)
	case isBroken:
		return nil, errors.New("stream ended before its first frame")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("stream ended before its first frame")
	case isUnsupported:
		return nil, wire.Errorf(wire.CodeUnsupported, "%v", unsupported)
	case err != nil:
		return nil, wire.Errorf(wire.CodeProtocol, "first frame of a stream: %v", err)
	}
	return m, stream.SetReadDeadline(time.Time{})
}

// remember marks the errors of a stream, so that a reset which the peer sent with
// CodeProtocol is not taken for a frame that is wrong.
type remember struct{ stream wire.Stream }

func (r *remember) Read(p []byte) (int, error) {
	n, err := r.stream.Read(p)
	if err != nil && err != io.EOF {
		err = &brokenError{err}
	}
	return n, err
}

// brokenError does not unwrap: the peer's code is not the relay's finding.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }

// openIncoming begins a circuit on an executor's connection. It does not wait for the
// executor: one that takes no more streams is busy.
func (c *conn) openIncoming(ctx context.Context, m *wire.Incoming) (wire.Stream, *wire.Error) {
	stream, err := tryOpen(ctx, c.transport)
	if err == nil {
		if err = writeFrame(stream, m); err == nil {
			return stream, nil
		}
		stream.Reset(wire.CodeTimeout)
	}
	switch {
	case c.transport.Context().Err() != nil, errors.Is(err, wire.ErrLost):
		return nil, unreachable() // its connection has just ended
	case wire.CodeOf(err) == wire.CodeBusy, errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return nil, busy("the executor takes no more circuits at the moment")
	}
	return nil, unreachable()
}

// openTimeout bounds the opening of a stream on a transport that has no way to ask
// without waiting.
const openTimeout = time.Second

func tryOpen(ctx context.Context, t wire.Transport) (wire.Stream, error) {
	if o, ok := t.(interface {
		TryOpenStream() (wire.Stream, error)
	}); ok {
		return o.TryOpenStream()
	}
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return t.OpenStream(ctx)
}

// writeFrame writes the head of a stream. It is short and the first thing on its stream,
// so it waits only when the peer's whole connection is stuffed.
func writeFrame(stream wire.Stream, m wire.Message) error {
	if err := stream.SetWriteDeadline(time.Now().Add(wire.HeaderTimeout)); err != nil {
		return err
	}
	if err := wire.WriteFrame(stream, m); err != nil {
		return err
	}
	return stream.SetWriteDeadline(time.Time{})
}

// answerNo refuses a dial. The answer arrives although the stream is stopped right after
// it: Reset leaves a direction alone that has ended cleanly.
func (c *conn) answerNo(stream wire.Stream, e *wire.Error) {
	s := c.server
	s.metrics.dials.WithLabelValues(codeName(e.Code)).Inc()
	if e.Code == wire.CodeBusy {
		s.metrics.tenants.dial(c.tenant, dialLimited)
	} else {
		s.metrics.tenants.dial(c.tenant, dialFailed)
	}
	s.metrics.refusals.WithLabelValues(codeName(e.Code)).Inc()
	if err := writeFrame(stream, wire.DialRefusal(e)); err == nil {
		_ = stream.CloseWrite()
	}
	stream.Reset(e.Code)
}

// unreachable is the one answer for an executor that is unknown, offline, or somebody
// else's: a client cannot find out which keys exist.
func unreachable() *wire.Error {
	return wire.Errorf(wire.CodeUnreachable, "the executor is not connected to the relay, or the relay does not let this client use it")
}

func busy(text string) *wire.Error {
	return &wire.Error{Code: wire.CodeBusy, Text: text, RetryAfter: retryBusy}
}
