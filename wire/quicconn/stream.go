package quicconn

import (
	"io"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

// stream is a QUIC stream as the wire package wants it.
type stream struct {
	quic   *quic.Stream
	closed atomic.Bool // CloseWrite was called
}

// Read returns io.EOF for the peer's CloseWrite and for nothing else.
func (s *stream) Read(p []byte) (int, error) {
	n, err := s.quic.Read(p)
	return n, translateStream(err)
}

// WaitReadable blocks until Read has something to return, be it an error. It holds no
// buffer meanwhile, which counts when thousands of streams are idle.
func (s *stream) WaitReadable() {
	var b [1]byte
	_, _ = s.quic.Peek(b[:]) // Read says what is wrong
}

func (s *stream) Write(p []byte) (int, error) {
	n, err := s.quic.Write(p)
	return n, translateStream(err)
}

func (s *stream) CloseWrite() error {
	if s.closed.Swap(true) {
		return nil
	}
	if err := s.quic.Close(); err != nil {
		// quic-go has no error of its own here for a stream that was reset; Write has.
		if _, reset := s.quic.Write(nil); reset != nil {
			return translateStream(reset)
		}
		return io.ErrClosedPipe
	}
	return nil
}

// Reset stops both directions. After CloseWrite it leaves the writing direction alone,
// since cancelling it would drop what the peer has not acknowledged yet.
func (s *stream) Reset(code wire.Code) {
	s.quic.CancelRead(quic.StreamErrorCode(code))
	if !s.closed.Load() {
		s.quic.CancelWrite(quic.StreamErrorCode(code))
	}
}

func (s *stream) SetReadDeadline(t time.Time) error  { return s.quic.SetReadDeadline(t) }
func (s *stream) SetWriteDeadline(t time.Time) error { return s.quic.SetWriteDeadline(t) }
