package wire

import (
	"context"
	"io"
	"time"
)

// Stream is one bidirectional byte stream with half-close. A QUIC stream is one, a
// TLS connection could be. One goroutine reads and one writes at a time; the other
// methods may be called beside them.
type Stream interface {
	io.Reader
	io.Writer
	// CloseWrite ends the writing direction cleanly: the peer reads io.EOF. Reading goes on.
	CloseWrite() error
	// Reset ends both directions at once; the peer's calls fail with an *Error of this
	// code, never with io.EOF. After CloseWrite it still stops the reading direction.
	Reset(Code)
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// Transport is one connection between a peer and its relay; the layers above need no
// more of it than this. It is safe for concurrent use.
type Transport interface {
	OpenStream(context.Context) (Stream, error)
	AcceptStream(context.Context) (Stream, error)
	// Binding is the channel binding that the hop's handshake mixes into its prologue
	// (TLS exporter, RFC 9266). Empty means that the transport has none; then every
	// hop byte, stream headers included, must travel in Noise records.
	Binding() []byte
	// Close ends the connection and all its streams with a code that the peer sees.
	Close(Code, string) error
	// Context is done when the connection has ended; its cause says why.
	Context() context.Context
}
