package quicconn

import (
	"errors"
	"fmt"
	"net"
)

// errDraining reaches nobody: the peer sees CONNECTION_REFUSED.
var errDraining = errors.New("listener is draining")

// Drain refuses new connections from now on, at once and in so many words, so that whoever
// tries goes elsewhere. Handshakes that are not done are refused too; connections that
// Accept has returned are left untouched. Accept returns what is done already, and then
// an error that wraps net.ErrClosed. Further calls do nothing; after Close it fails with
// that error. Close must still be called.
func (l *Listener) Drain() error {
	if l.draining.Swap(true) {
		return nil
	}
	if err := l.listener.Close(); err != nil {
		return fmt.Errorf("drain the listener: %w", err)
	}
	// A transport without a listener says nothing to newcomers, who would wait for their
	// timeouts. The next one lives until the transport is closed and lets nobody in.
	tlsConfig, err := listenTLS()
	if err != nil {
		return err
	}
	if _, err := l.transport.Listen(tlsConfig, listenConfig(ListenOptions{})); err != nil {
		return fmt.Errorf("drain the listener: %w (%w)", net.ErrClosed, err)
	}
	return nil
}
