package relaytest

import (
	"context"
	"fmt"
	"net"
	"sync"

	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// Listener hands in-memory transports to a relay. It is safe for concurrent use.
type Listener struct {
	offered chan wire.Transport
	once    sync.Once
	closed  chan struct{}
}

// NewListener makes a listener for [Serve].
func NewListener() *Listener {
	return &Listener{offered: make(chan wire.Transport), closed: make(chan struct{})}
}

// Dial makes a connection with this channel binding and returns the dialling side, once
// the relay has accepted the other.
func (l *Listener) Dial(ctx context.Context, binding []byte) (wire.Transport, error) {
	mine, theirs := wiretest.Transports(binding)
	if err := l.Offer(ctx, theirs); err != nil {
		_ = mine.Close(wire.CodeCancelled, "")
		return nil, err
	}
	return mine, nil
}

// Offer hands t to the relay as if it had been dialled.
func (l *Listener) Offer(ctx context.Context, t wire.Transport) error {
	select {
	case l.offered <- t:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-l.closed:
		return fmt.Errorf("dial in memory: %w", net.ErrClosed)
	}
}

// Accept returns the next transport that was offered.
func (l *Listener) Accept(ctx context.Context) (wire.Transport, error) {
	select {
	case t := <-l.offered:
		return t, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-l.closed:
		return nil, fmt.Errorf("accept in memory: %w", net.ErrClosed)
	}
}

// Close makes Dial and Accept fail. Transports that were accepted go on.
func (l *Listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}
