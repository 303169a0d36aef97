package quicconn

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// translate turns quic-go's errors into those that the wire interfaces promise. A reset
// or close with a code is a *wire.Error; everything else that ends a connection wraps
// wire.ErrLost, because what was on its way may or may not have arrived. Only io.EOF is a
// clean end, and only quic-go's own stays one.
func translate(err error) error {
	switch {
	case err == nil, err == io.EOF:
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	if e, ok := errors.AsType[*quic.StreamError](err); ok {
		return codeError(uint64(e.ErrorCode), "")
	}
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok {
		return codeError(uint64(e.ErrorCode), e.ErrorMessage)
	}
	if _, ok := errors.AsType[*quic.StreamLimitReachedError](err); ok {
		return wire.Errorf(wire.CodeBusy, "the peer takes no more streams at the moment")
	}
	if errors.Is(err, quic.ErrStreamClosed) {
		return io.ErrClosedPipe
	}
	if endsConnection(err) {
		return fmt.Errorf("%w: %w", wire.ErrLost, err)
	}
	return err
}

// translateStream is translate for what a stream's methods return. When the connection was
// closed under a stream, the error has the code and wraps wire.ErrLost as well: it must
// not be mistaken for a reset of this one stream.
func translateStream(err error) error {
	if e, ok := errors.AsType[*quic.ApplicationError](err); ok {
		return fmt.Errorf("connection closed: %w (%w)", codeError(uint64(e.ErrorCode), e.ErrorMessage), wire.ErrLost)
	}
	return translate(err)
}

// endsConnection reports whether err is the end of a connection that nobody closed: no
// packets, a reset by a restarted peer, a broken or refused handshake, a closed socket.
func endsConnection(err error) bool {
	if _, ok := errors.AsType[*quic.IdleTimeoutError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*quic.HandshakeTimeoutError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*quic.StatelessResetError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*quic.TransportError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*quic.VersionNegotiationError](err); ok {
		return true
	}
	return errors.Is(err, quic.ErrTransportClosed)
}

// codeError is a code that came over the wire. Zero is no code and a large number cannot
// be one: whoever sends such breaks the protocol.
func codeError(code uint64, text string) *wire.Error {
	if code == 0 || code > 0xffff {
		return wire.Errorf(wire.CodeProtocol, "the peer ended this with the number %d, which is no code", code)
	}
	return &wire.Error{Code: wire.Code(code), Text: cutText(text)}
}
