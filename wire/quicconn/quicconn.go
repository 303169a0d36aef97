// Package quicconn carries the wire interfaces over QUIC: it dials and listens, turns
// QUIC connections and streams into [wire.Transport] and [wire.Stream], and QUIC's errors
// into codes.
//
// It proves nobody's identity. TLS here only encrypts and yields a channel binding; who
// is at the other end is settled by the Noise handshake on the first stream, which mixes
// the binding in (wire/noiseconn). Nor does it decide who may connect, or what a stream
// means. It is the only package that knows quic-go, so that every setting and every
// oddity of that library is written down once.
//
// Start with settings.go for the figures and their reasons, then [Dial] and [Listen],
// then [Guard] for what strangers may cost before anybody has proven anything, then
// [Redial] for whoever must stay connected. A receive buffer of the kernel's
// default size drops packets at high rates: net.core.rmem_max and net.core.wmem_max of
// 7500000 let the sockets made here have what they ask for. On Linux datagrams of one sender
// are read many at a time (gro_linux.go); POSTERN_DISABLE_GRO=1 in the environment reads each by itself.
package quicconn

import (
	"context"
	"fmt"
	"net"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// Conn is one QUIC connection. It implements [wire.Transport] and is safe for
// concurrent use. Whoever dialled or accepted it closes it.
type Conn struct {
	quic     *quic.Conn
	binding  []byte
	ctx      context.Context
	visit    *visit        // nil on the dialling side
	seen     seen          // what Stats has told before
	released chan struct{} // closed when the connection holds nothing any more
}

// newConn takes over q. When q has ended, release is called once; nil means that there is
// nothing to give back.
func newConn(q *quic.Conn, release func()) (*Conn, error) {
	// RFC 9266: this label, no context, 32 bytes. The domain separation is in the prologue.
	state := q.ConnectionState().TLS
	binding, err := state.ExportKeyingMaterial("EXPORTER-Channel-Binding", nil, 32)
	if err != nil {
		return nil, fmt.Errorf("channel binding of the TLS connection: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(q.Context()))
	c := &Conn{quic: q, binding: binding, ctx: ctx, released: make(chan struct{})}
	c.seen.addr = q.RemoteAddr().String()
	context.AfterFunc(q.Context(), func() {
		defer close(c.released)
		cancel(translate(context.Cause(q.Context())))
		if release != nil {
			release()
		}
	})
	return c, nil
}

// OpenStream opens a stream, and waits while the peer allows no more of them. The peer
// learns of it with the first byte.
func (c *Conn) OpenStream(ctx context.Context) (wire.Stream, error) {
	s, err := c.quic.OpenStreamSync(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &stream{quic: s}, nil
}

// TryOpenStream is OpenStream that never waits: when the peer allows no more streams its
// error is a *wire.Error of CodeBusy.
func (c *Conn) TryOpenStream() (wire.Stream, error) {
	s, err := c.quic.OpenStream()
	if err != nil {
		return nil, translate(err)
	}
	return &stream{quic: s}, nil
}

// AcceptStream waits for a stream that the peer opened and wrote to.
func (c *Conn) AcceptStream(ctx context.Context) (wire.Stream, error) {
	s, err := c.quic.AcceptStream(ctx)
	if err != nil {
		return nil, translate(err)
	}
	return &stream{quic: s}, nil
}

// Binding is the TLS exporter value of RFC 9266, 32 bytes. The caller must not change it.
func (c *Conn) Binding() []byte { return c.binding }

// Admit notes that the peer of an accepted connection has proven who it is: from now on
// its window may grow, and the limits of the [Guard] for strangers are no longer about it.
// On the dialling side it does nothing.
func (c *Conn) Admit() { c.visit.admit() }

// RemoteAddr is where the peer's packets come from now.
func (c *Conn) RemoteAddr() net.Addr { return c.quic.RemoteAddr() }

// Close ends the connection and its streams; the peer sees code and text. It returns when
// the socket of a dialled connection is closed. Further calls do nothing.
func (c *Conn) Close(code wire.Code, text string) error {
	err := c.quic.CloseWithError(quic.ApplicationErrorCode(code), cutText(text))
	<-c.released
	return err
}

// Context is done when the connection has ended. Its cause is a *wire.Error when one side
// closed it, and wraps wire.ErrLost when it broke.
func (c *Conn) Context() context.Context { return c.ctx }

// cutText keeps a reason within what fits one packet beside the rest, and within MaxText.
func cutText(text string) string {
	const most = 512
	if len(text) <= most {
		return text
	}
	for i := range text {
		if i > most-utf8Max {
			return text[:i]
		}
	}
	return text[:most]
}

const utf8Max = 4
