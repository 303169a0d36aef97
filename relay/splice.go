package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/wire"
)

// splice joins two streams until both directions have ended.
//
// What one end does, the other sees: a clean end of one direction is passed on as one, and
// the other direction goes on; a reset is passed on with its code, both ways. An error is
// never passed on as a clean end. A byte is read only when the one before was accepted on
// the other side, so that flow control reaches through the relay.
type splice struct {
	client, executor   wire.Stream
	stall              time.Duration // longest time without progress of one write
	bytesUp, bytesDown prometheus.Counter
}

// outcome is how one direction ended.
type outcome struct {
	code    wire.Code // zero: cleanly
	stopped bool      // the receiver reads no more, but may still send
}

// run copies, and returns the code with which the circuit ended, zero if cleanly. When one
// of the two connections ends, so do both streams.
func (s *splice) run(connections ...context.Context) wire.Code {
	for _, ctx := range connections {
		// Needed although reads fail by themselves: a direction that waits for the live side
		// to take a byte does not notice.
		stop := context.AfterFunc(ctx, func() { s.reset(wire.CodeUnknown) })
		defer stop()
	}
	upward := make(chan outcome, 1)
	go func() { upward <- s.copy(s.executor, s.client, s.bytesUp) }()
	down := s.copy(s.client, s.executor, s.bytesDown)
	up := <-upward
	// A receiver that stopped reading was left to finish what it had to send. Now its
	// sender is told; that direction has ended cleanly by now or is reset already.
	if up.stopped {
		s.client.Reset(up.code)
	}
	if down.stopped {
		s.executor.Reset(down.code)
	}
	if up.code != 0 {
		return up.code
	}
	return down.code
}

func (s *splice) reset(code wire.Code) {
	s.client.Reset(code)
	s.executor.Reset(code)
}

// copy runs one direction.
func (s *splice) copy(to, from wire.Stream, count prometheus.Counter) outcome {
	for {
		ended, readErr, writeErr := s.chunk(to, from, count)
		switch {
		case writeErr != nil && isStop(writeErr):
			return outcome{code: wire.CodeOf(writeErr), stopped: true}
		case writeErr != nil:
			return s.abort(writeErr)
		case readErr != nil:
			return s.abort(readErr)
		case ended:
			return outcome{}
		}
	}
}

// abort ends the circuit for an error that leaves nothing to finish.
func (s *splice) abort(err error) outcome {
	code := codeFor(err)
	s.reset(code)
	return outcome{code: code}
}

// isStop reports whether a failed write means no more than that the receiver stopped
// reading.
func isStop(err error) bool {
	_, isCode := errors.AsType[*wire.Error](err)
	return isCode && !errors.Is(err, wire.ErrLost)
}

// codeFor is what the other end is told about err. The reason for which a connection was
// closed concerns its peer only; the other end knows no more than that the outcome is
// unknown.
func codeFor(err error) wire.Code {
	switch {
	case errors.Is(err, wire.ErrLost):
		return wire.CodeUnknown
	case errors.Is(err, os.ErrDeadlineExceeded):
		return wire.CodeTimeout
	}
	return wire.CodeOf(err)
}

const copyBuffer = 32 << 10

var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// chunk copies what there is to read, at most one buffer. It takes the buffer only then:
// most circuits are idle most of the time.
func (s *splice) chunk(to, from wire.Stream, count prometheus.Counter) (ended bool, readErr, writeErr error) {
	if w, ok := from.(interface{ WaitReadable() }); ok {
		w.WaitReadable()
	}
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	defer copyBuffers.Put(buf)
	n, readErr := from.Read(buf[:])
	if n > 0 {
		count.Add(float64(n))
		if writeErr = s.write(to, buf[:n]); writeErr != nil {
			return false, nil, writeErr
		}
	}
	if readErr == io.EOF {
		return true, nil, to.CloseWrite()
	}
	return false, readErr, nil
}

// write writes all of b, as long as there is progress. When there was some before the
// deadline, nobody knows how long before, so another one decides.
func (s *splice) write(to wire.Stream, b []byte) error {
	for {
		if err := to.SetWriteDeadline(time.Now().Add(s.stall)); err != nil {
			return err
		}
		n, err := to.Write(b)
		if n == len(b) {
			return nil
		}
		if b = b[n:]; n > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			err = io.ErrShortWrite
		}
		return err
	}
}
