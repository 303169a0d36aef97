package agent

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// The bytes of a circuit travel in frames, since a socket alone cannot tell an end from a reset or from a process that died: four
// bytes of kind and length, or kind and code, then the bytes.
const (
	kindData  = 0 << 24
	kindEnd   = 1 << 24
	kindReset = 2 << 24
	kindMask  = 0xff << 24

	maxData = 64 << 10 // bytes of a data frame
)

// stream is a wire.Stream over a unix socket. Whoever made it ends it with Reset.
type stream struct {
	conn net.Conn
	in   *bufio.Reader

	left    int   // bytes of the data frame that is being read; the reader's
	readErr error // the reader's

	writing  sync.Mutex
	ended    bool  // CloseWrite was called
	writeErr error // a write that failed may have left half a frame
}

func newStream(conn net.Conn) *stream {
	return &stream{conn: conn, in: bufio.NewReaderSize(conn, maxData)}
}

// Read implements wire.Stream. What is half there when a deadline passes is kept.
func (s *stream) Read(p []byte) (int, error) {
	for s.left == 0 && s.readErr == nil {
		head, err := s.in.Peek(4)
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return 0, err
			}
			s.readErr = lost(err) // the end of the socket is no end of the stream
			break
		}
		_, _ = s.in.Discard(4)
		s.open(binary.BigEndian.Uint32(head))
	}
	if s.readErr != nil {
		return 0, s.readErr
	}
	n, err := s.in.Read(p[:min(len(p), s.left)])
	s.left -= n
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		s.readErr = lost(err)
		err = s.readErr
	}
	return n, err
}

// open begins a frame.
func (s *stream) open(head uint32) {
	low := head &^ kindMask
	switch head & kindMask {
	case kindData:
		if s.left = int(low); low > maxData {
			s.readErr = errFrame
		}
	case kindEnd:
		s.readErr = io.EOF
	case kindReset:
		s.readErr = wire.Errorf(wire.Code(low), "the agent's stream was reset")
	default:
		s.readErr = errFrame
	}
}

// Write implements wire.Stream.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	switch {
	case s.writeErr != nil:
		return 0, s.writeErr
	case s.ended:
		return 0, io.ErrClosedPipe
	}
	done := 0
	for done < len(p) {
		chunk := p[done:min(done+maxData, len(p))]
		if err := s.frame(kindData|uint32(len(chunk)), chunk); err != nil {
			return done, err
		}
		done += len(chunk)
	}
	return done, nil
}

// frame writes a whole frame in one call. A deadline that passes within one leaves a stream of no more use.
func (s *stream) frame(head uint32, data []byte) error {
	b := net.Buffers{binary.BigEndian.AppendUint32(nil, head), data}
	if n, err := b.WriteTo(s.conn); err != nil {
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
		s.writeErr = lost(err)
		return s.writeErr
	}
	return nil
}

// CloseWrite implements wire.Stream.
func (s *stream) CloseWrite() error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if s.writeErr != nil || s.ended {
		return s.writeErr
	}
	s.ended = true
	return s.frame(kindEnd, nil)
}

// Reset implements wire.Stream. The other end may be slow to read: it learns the code if there is room for it.
func (s *stream) Reset(code wire.Code) {
	_ = s.conn.SetWriteDeadline(time.Unix(1, 0)) // ends a write that is under way
	s.writing.Lock()
	if s.writeErr == nil && !s.ended {
		_ = s.conn.SetWriteDeadline(time.Now().Add(resetTime))
		_ = s.frame(kindReset|uint32(code)&^kindMask, nil)
		s.writeErr = io.ErrClosedPipe
	}
	s.writing.Unlock()
	s.conn.Close()
}

// resetTime is how long a reset waits for room in the socket.
const resetTime = 20 * time.Millisecond

// SetReadDeadline implements wire.Stream.
func (s *stream) SetReadDeadline(t time.Time) error { return s.conn.SetReadDeadline(t) }

// SetWriteDeadline implements wire.Stream.
func (s *stream) SetWriteDeadline(t time.Time) error { return s.conn.SetWriteDeadline(t) }

func lost(err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("the agent is gone: %w", wire.ErrLost)
	}
	return fmt.Errorf("the agent's socket: %w (%w)", err, wire.ErrLost)
}
