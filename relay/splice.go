package relay

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// splice joins two streams until both directions have ended.
//
// What one end does, the other sees: a clean end of one direction is passed on as one, and
// the other direction goes on; a reset is passed on with its code, both ways. An error is
// never passed on as a clean end. A chunk is read when the one before was accepted on the
// other side, and at most a backlog ahead of a receiver that is slow.
type splice struct {
	client, executor wire.Stream
	stall            time.Duration // longest time without progress of one write
	// countUp and countDown are told of the bytes of a direction, countUp of those to the executor.
	countUp, countDown func(n int)
	paces              []paced // of the tenant and of the client's key

	ctx       context.Context // ends with the circuit
	cancel    context.CancelFunc
	backlogs  *budget        // the relay's
	relieving sync.WaitGroup // what reads ahead of a slow receiver
}

// outcome is how one direction ended.
type outcome struct {
	code    wire.Code // zero: cleanly
	stopped bool      // the receiver reads no more, but may still send
}

// run copies, and returns the code with which the circuit ended, zero if cleanly. When one
// of the two connections ends, so do both streams.
func (s *splice) run(connections ...context.Context) wire.Code {
	s.ctx, s.cancel = context.WithCancel(context.Background())
	defer s.cancel()
	for _, ctx := range connections {
		// Needed although reads fail by themselves: a direction that waits for the live side
		// to take a byte does not notice.
		stop := context.AfterFunc(ctx, func() { s.reset(wire.CodeUnknown) })
		defer stop()
	}
	upward := make(chan outcome, 1)
	go func() { upward <- s.copy(s.executor, s.client, s.countUp) }()
	down := s.copy(s.client, s.executor, s.countDown)
	up := <-upward
	// A receiver that stopped reading was left to finish what it had to send. Now its
	// sender is told; that direction has ended cleanly by now or is reset already.
	if up.stopped {
		s.client.Reset(up.code)
	}
	if down.stopped {
		s.executor.Reset(down.code)
	}
	s.relieving.Wait() // both streams are over
	if up.code != 0 {
		return up.code
	}
	return down.code
}

// carry counts a chunk that was read, and holds it back to the rates of the tenant and of the key. What the sender may send
// meanwhile is up to QUIC's windows.
func (s *splice) carry(from wire.Stream, count func(n int), n int) {
	count(n)
	looked := false
	for _, p := range s.paces {
		p.pace.take(s.ctx, n, func() bool {
			looked = true
			return wasReset(from)
		}, p.limited)
	}
	if looked {
		_ = from.SetReadDeadline(time.Time{}) // the next read says what is wrong
	}
}

// paced is a rate, and what is told when it holds a chunk back.
type paced struct {
	pace    *pace
	limited func()
}

// wasReset looks whether the sender has given up, which nobody else reads while its chunk is held back. A read
// whose deadline has passed returns a reset, but no byte.
func wasReset(from wire.Stream) bool {
	if err := from.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return true
	}
	n, err := from.Read(make([]byte, 1))
	if n > 0 { // a stream that breaks its word: what it gave is lost, so nothing may follow
		from.Reset(wire.CodeInternal)
		return true
	}
	return err != nil && err != io.EOF && !errors.Is(err, os.ErrDeadlineExceeded)
}

func (s *splice) reset(code wire.Code) {
	s.cancel()
	s.client.Reset(code)
	s.executor.Reset(code)
}

// copy runs one direction.
func (s *splice) copy(to, from wire.Stream, count func(n int)) outcome {
	for {
		chunk, readErr := readChunk(from)
		s.carry(from, count, len(chunk))
		rest, writeErr := s.tryWrite(to, chunk)
		if len(rest) > 0 && writeErr == nil && readErr == nil {
			rest = append([]byte(nil), rest...)
			release(chunk)
			return s.copyRelieved(to, from, rest)
		}
		if len(rest) > 0 && writeErr == nil { // the last one
			writeErr = s.write(to, rest)
		}
		release(chunk)
		if readErr == io.EOF && writeErr == nil {
			if writeErr = to.CloseWrite(); writeErr == nil {
				return outcome{}
			}
		}
		switch {
		case writeErr != nil && isStop(writeErr):
			return outcome{code: wire.CodeOf(writeErr), stopped: true}
		case writeErr != nil:
			return s.abort(writeErr)
		case readErr != nil:
			return s.abort(readErr)
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

// readChunk reads what there is, at most one buffer, for release. It takes the buffer only
// then: most circuits are idle most of the time.
func readChunk(from wire.Stream) ([]byte, error) {
	if w, ok := from.(interface{ WaitReadable() }); ok {
		w.WaitReadable()
	}
	buf := copyBuffers.Get().(*[copyBuffer]byte)
	n, err := from.Read(buf[:])
	return buf[:n], err
}

func release(chunk []byte) { copyBuffers.Put((*[copyBuffer]byte)(chunk[:copyBuffer])) }

// slow is how long a receiver may take for a chunk before what follows is read ahead of it.
const slow = 100 * time.Millisecond

// tryWrite writes b, and returns what a slow receiver has not taken of it.
func (s *splice) tryWrite(to wire.Stream, b []byte) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil
	}
	if err := to.SetWriteDeadline(time.Now().Add(min(slow, s.stall))); err != nil {
		return nil, err
	}
	n, err := to.Write(b)
	switch {
	case n == len(b):
		return nil, nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return b[n:], nil
	case err == nil:
		err = io.ErrShortWrite
	}
	return nil, err
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
