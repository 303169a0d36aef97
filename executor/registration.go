package executor

import (
	"context"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// connect is one registration, from dial to loss, and counts it.
func (e *Executor) connect(ctx context.Context) (established time.Time, err error) {
	established, err = e.register(ctx)
	switch {
	case established.IsZero() && ctx.Err() == nil:
		e.cfg.Metrics.connecting(err, time.Time{})
	case !established.IsZero():
		e.cfg.Metrics.disconnected(err, ctx.Err() != nil)
		e.lost = time.Now()
	}
	return established, err
}

func (e *Executor) register(outer context.Context) (established time.Time, err error) {
	ctx, cancel := context.WithCancelCause(outer)
	defer cancel(nil)
	joining, done := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer done()
	t, err := e.cfg.Dial(joining)
	if err != nil {
		return time.Time{}, err
	}
	defer t.Close(wire.CodeShutdown, "")
	pinned := e.relayKey()
	hop, err := noiseconn.Join(joining, t, e.cfg.Key, pinned, &wire.HopHello{
		Role: wire.RoleExecutor, Versions: wire.Versions, Name: e.cfg.Name, Instance: e.instance, Software: e.cfg.Software,
	})
	if err != nil {
		return time.Time{}, err
	}
	established = time.Now()
	e.cfg.Log.Info("registered", "name", hop.Welcome.Name, "generation", hop.Welcome.Generation)
	e.cfg.Metrics.connecting(nil, e.lost)
	e.cfg.Metrics.relayTime(hop.Welcome.Time)
	e.follow(pinned, hop.Welcome.NextRelay)
	hop.Notice, hop.NextKey = e.notice, func(next *wire.Bytes32) { e.follow(pinned, next) }
	e.cfg.Backend.table.registration(+1)
	defer e.cfg.Backend.table.registration(-1)
	e.registered.set(t)
	defer e.registered.set(nil)
	if e.cfg.Registered != nil {
		e.cfg.Registered(hop.Welcome)
	}
	var circuits sync.WaitGroup
	circuits.Go(func() { cancel(hop.Run(ctx, wire.ExecutorHeartbeat)) })
	for {
		s, err := t.AcceptStream(ctx)
		if err != nil {
			cancel(err)
			break
		}
		circuits.Go(func() { e.incoming(ctx, s) })
	}
	err = lastWord(outer, t, context.Cause(ctx))
	t.Close(wire.CodeShutdown, "")
	circuits.Wait()
	if leaving := hop.Leaving(); leaving != nil {
		err = leaving // with the time that the relay wants to be left alone
	}
	return established, err
}

// lastWord is why the connection has ended. Its control stream and the transport's code travel apart, and it is the code that says
// that the key was removed: it has a moment to arrive.
func lastWord(ctx context.Context, t wire.Transport, err error) error {
	select {
	case <-t.Context().Done():
		return context.Cause(t.Context())
	case <-ctx.Done():
	case <-time.After(250 * time.Millisecond):
	}
	return err
}

// incoming reads the relay's frame and serves the circuit.
func (e *Executor) incoming(ctx context.Context, s wire.Stream) {
	s.SetReadDeadline(time.Now().Add(wire.HeaderTimeout))
	m, err := wire.ReadFrame(s)
	in, ok := m.(*wire.Incoming)
	if err != nil || !ok {
		s.Reset(wire.CodeProtocol)
		return
	}
	s.SetReadDeadline(time.Time{})
	if err := e.ServeCircuit(ctx, s, in.Client); err != nil {
		e.cfg.Log.Debug("circuit ended", "circuit", in.Circuit, "err", err)
	}
}
