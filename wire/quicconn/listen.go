package quicconn

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// Listener accepts the connections of one socket. It is safe for concurrent use.
type Listener struct {
	transport *quic.Transport
	listener  *quic.Listener
	socket    net.PacketConn
	guard     *Guard
	draining  atomic.Bool
	plain     func()       // makes the socket one that anybody can read again
	close     func() error // of the socket, unless it is the caller's
}

// ListenOptions are the settings of the accepting side. The zero value works.
type ListenOptions struct {
	// Secret is what the keys for stateless resets and address tokens are derived from.
	// With the same secret a restarted relay tells its old peers at once that their
	// connections are gone; without one they find out by their idle timeout. At least 32
	// bytes; nil means a random one for this Listener.
	Secret []byte
	// MaxStreams is how many streams a peer may have open at a time; zero is 1100, which
	// is a little above the circuits that a relay allows by default.
	MaxStreams int64
	// Guard bounds what strangers can cost; nil is one with the defaults.
	Guard *Guard
	// DisablePathMTUDiscovery keeps packets at 1280 bytes. Simulated networks need it.
	DisablePathMTUDiscovery bool
}

// Listen listens on a UDP address such as ":4433" (IPv6 and IPv4) or "127.0.0.1:0".
func Listen(address string, o ListenOptions) (*Listener, error) {
	local, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	socket, err := openSocket("udp", local)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l, err := ListenPacket(socket, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", address, err), socket.Close())
	}
	l.close = socket.Close
	return l, nil
}

// ListenPacket is Listen on a socket that the caller made and closes, after the Listener.
// Nobody else may use it meanwhile.
func ListenPacket(socket net.PacketConn, o ListenOptions) (*Listener, error) {
	silenceBufferWarning()
	if u, ok := socket.(*net.UDPConn); ok {
		if err := checkSocket(u); err != nil {
			return nil, err
		}
	}
	l := &Listener{socket: socket, guard: o.Guard}
	if l.guard == nil {
		l.guard = NewGuard(GuardOptions{})
	} else if l.guard.random == nil {
		return nil, errors.New("listener with a zero Guard: make it with NewGuard")
	}
	t := listenTransport(l)
	if o.Secret != nil {
		if len(o.Secret) < 32 {
			return nil, fmt.Errorf("listener secret of %d bytes: at least 32 are needed", len(o.Secret))
		}
		reset, err := derive(o.Secret, "postern quic stateless reset v1")
		if err != nil {
			return nil, err
		}
		token, err := derive(o.Secret, "postern quic address token v1")
		if err != nil {
			return nil, err
		}
		t.StatelessResetKey = (*quic.StatelessResetKey)(&reset)
		t.TokenGeneratorKey = (*quic.TokenGeneratorKey)(&token)
	}
	tlsConfig, err := listenTLS()
	if err != nil {
		return nil, err
	}
	t.Conn, l.plain = coalesced(socket)
	ql, err := t.Listen(tlsConfig, listenConfig(o))
	if err != nil {
		err = errors.Join(err, t.Close())
		l.plain()
		return nil, err
	}
	l.transport, l.listener = t, ql
	return l, nil
}

func derive(secret []byte, info string) (key [32]byte, err error) {
	b, err := hkdf.Key(sha256.New, secret, nil, info, len(key))
	if err != nil {
		return key, fmt.Errorf("derive a key of the listener: %w", err)
	}
	return [32]byte(b), nil
}

// Accept waits for a connection whose TLS handshake is done; its peer is still unknown.
// It must be called again soon: QUIC refuses what waits behind 32 others. The error wraps
// net.ErrClosed after Close or Drain.
func (l *Listener) Accept(ctx context.Context) (wire.Transport, error) {
	for {
		q, err := l.listener.Accept(ctx)
		if errors.Is(err, quic.ErrServerClosed) || errors.Is(err, quic.ErrTransportClosed) {
			return nil, fmt.Errorf("accept: %w", net.ErrClosed)
		}
		if err != nil {
			return nil, err
		}
		v := visitOf(q.Context())
		if !v.prove() {
			_ = q.CloseWithError(quic.ApplicationErrorCode(wire.CodeBusy), "too many failures from this address: try again later")
			continue
		}
		c, err := newConn(q, v.end)
		if err != nil { // of this connection only
			_ = q.CloseWithError(quic.ApplicationErrorCode(wire.CodeInternal), "no channel binding")
			continue
		}
		c.visit = v
		return c, nil
	}
}

// Guard is the one of the options, or the one that was made for want of it.
func (l *Listener) Guard() *Guard { return l.guard }

// Addr is the address that the socket is bound to.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close stops accepting and drops the connections that are left, without a word to their
// peers: close those first.
func (l *Listener) Close() error {
	err := errors.Join(l.listener.Close(), l.transport.Close())
	l.plain()
	if l.close != nil {
		err = errors.Join(err, l.close())
	}
	return err
}
