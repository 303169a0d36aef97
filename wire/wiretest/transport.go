package wiretest

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/postern-relay/postern/wire"
)

// backlog is how many streams may wait to be accepted in each direction.
const backlog = 64

// Transports returns the two ends of an in-memory connection with the given channel
// binding. Its streams are pipes as [Pipe] makes them. OpenStream waits while 64 streams
// of that direction wait to be accepted; TryOpenStream answers busy instead. Unlike with
// QUIC a stream can be accepted before anything was written to it. Close on either end
// ends both, and what was not read by then is lost. Close one end when done.
func Transports(binding []byte) (a, b wire.Transport) {
	link := new(link)
	x := newEnd(link, binding)
	y := newEnd(link, binding)
	x.accepted, y.accepted = make(chan *pipeEnd, backlog), make(chan *pipeEnd, backlog)
	x.offered, y.offered = y.accepted, x.accepted
	x.peer, y.peer = y, x
	return x, y
}

// link is what the two ends share.
type link struct {
	mu      sync.Mutex
	ended   error      // why, once it has ended
	streams []*pipeEnd // one end of each; those that are over are dropped now and then
}

type transport struct {
	link     *link
	binding  []byte
	ctx      context.Context
	cancel   context.CancelCauseFunc
	peer     *transport
	accepted chan *pipeEnd // from the peer
	offered  chan<- *pipeEnd
}

func newEnd(l *link, binding []byte) *transport {
	ctx, cancel := context.WithCancelCause(context.Background())
	return &transport{link: l, binding: slices.Clone(binding), ctx: ctx, cancel: cancel}
}

func (t *transport) OpenStream(ctx context.Context) (wire.Stream, error) {
	mine, theirs := newPipe()
	if err := t.link.add(mine); err != nil {
		return nil, err
	}
	select {
	case t.offered <- theirs:
		return mine, nil
	case <-ctx.Done():
		mine.sever(context.Cause(ctx))
		return nil, context.Cause(ctx)
	case <-t.ctx.Done():
		return nil, context.Cause(t.ctx)
	}
}

// TryOpenStream is OpenStream that never waits: at the limit its error is busy.
func (t *transport) TryOpenStream() (wire.Stream, error) {
	mine, theirs := newPipe()
	if err := t.link.add(mine); err != nil {
		return nil, err
	}
	select {
	case t.offered <- theirs:
		return mine, nil
	default:
		err := wire.Errorf(wire.CodeBusy, "the peer takes no more streams at the moment")
		mine.sever(err)
		return nil, err
	}
}

func (t *transport) AcceptStream(ctx context.Context) (wire.Stream, error) {
	if err := context.Cause(t.ctx); err != nil {
		return nil, err
	}
	select {
	case s := <-t.accepted:
		return s, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.ctx.Done():
		return nil, context.Cause(t.ctx)
	}
}

func (t *transport) Binding() []byte { return slices.Clone(t.binding) }

func (t *transport) Context() context.Context { return t.ctx }

func (t *transport) Close(code wire.Code, text string) error {
	err := &wire.Error{Code: code, Text: text}
	streams, first := t.link.end(err)
	if !first {
		<-t.ctx.Done() // somebody else may be closing it at this moment
		<-t.peer.ctx.Done()
		return nil
	}
	// A stream's error says that the connection is gone, as QUIC's does.
	lost := fmt.Errorf("connection closed: %w (%w)", err, wire.ErrLost)
	for _, s := range streams {
		s.sever(lost)
	}
	t.cancel(err)
	t.peer.cancel(err)
	return nil
}

// add keeps s, so that it ends with the connection.
func (l *link) add(s *pipeEnd) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return l.ended
	}
	if len(l.streams) == cap(l.streams) { // before it grows
		l.streams = slices.DeleteFunc(l.streams, (*pipeEnd).finished)
	}
	l.streams = append(l.streams, s)
	return nil
}

// end marks the connection as ended and returns its streams, the first time.
func (l *link) end(err error) (streams []*pipeEnd, first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended != nil {
		return nil, false
	}
	l.ended = err
	streams, l.streams = l.streams, nil
	return streams, true
}
