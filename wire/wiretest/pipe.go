// Package wiretest holds what the tests of several packages need to exercise the wire
// interfaces: in-memory streams and connections, and suites that every implementation
// of an interface must pass.
//
// It is for tests only: the in-memory pairs have no encryption, and nothing of the
// product imports them. They use no goroutine of their own and only mutexes, condition
// variables and timers, so they work inside a testing/synctest bubble and leave nothing
// behind.
//
// Start with [Pipe] for one stream, with [Transports] for a connection, and with
// [TestStream] for what both must keep.
package wiretest

import (
	"io"
	"os"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// pipeBuffer is how many bytes one direction of a pipe holds before its writer waits.
const pipeBuffer = 64 << 10

// Pipe returns the two ends of an in-memory stream. Each direction holds 64 KiB, then
// Write waits. A reset drops what was not read yet, as QUIC does; what was written
// before CloseWrite is still delivered. There is nothing to close.
func Pipe() (a, b wire.Stream) {
	x, y := newPipe()
	return x, y
}

func newPipe() (a, b *pipeEnd) {
	mu := new(sync.Mutex)
	ab, ba := newHalf(mu), newHalf(mu)
	return &pipeEnd{in: ba, out: ab}, &pipeEnd{in: ab, out: ba}
}

// half is one direction of a pipe.
type half struct {
	mu      *sync.Mutex // of the whole pipe, so that a reset is seen in both directions at once
	changed *sync.Cond

	buffer        []byte
	fin           bool  // the writer has finished cleanly
	err           error // a reset, or the end of the connection; goes before everything else
	reads, writes limit
}

func newHalf(mu *sync.Mutex) *half {
	return &half{mu: mu, changed: sync.NewCond(mu)}
}

// fail ends the direction with err unless something ended it before.
func (h *half) fail(err error) {
	if h.err != nil {
		return
	}
	h.err = err
	h.buffer = nil
	h.changed.Broadcast()
}

// limit is a deadline of one side of a half.
type limit struct {
	timer   *time.Timer
	expired bool
}

// set replaces the deadline; the half's lock is held.
func (l *limit) set(h *half, t time.Time) {
	if l.timer != nil {
		l.timer.Stop()
		l.timer = nil
	}
	l.expired = false
	if t.IsZero() {
		return
	}
	wait := time.Until(t)
	if wait <= 0 {
		l.expired = true
		h.changed.Broadcast()
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		if l.timer == timer { // else a newer deadline came while this one fired
			l.expired = true
			h.changed.Broadcast()
		}
	})
	l.timer = timer
}

// pipeEnd is what one side holds.
type pipeEnd struct{ in, out *half }

func (e *pipeEnd) Read(p []byte) (int, error) {
	h := e.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for {
		switch {
		case h.err != nil:
			return 0, h.err
		case h.reads.expired:
			return 0, os.ErrDeadlineExceeded
		case len(p) == 0:
			return 0, nil
		case len(h.buffer) > 0:
			n := copy(p, h.buffer)
			h.buffer = h.buffer[n:]
			h.changed.Broadcast()
			return n, nil
		case h.fin:
			return 0, io.EOF
		}
		h.changed.Wait()
	}
}

func (e *pipeEnd) Write(p []byte) (int, error) {
	h := e.out
	h.mu.Lock()
	defer h.mu.Unlock()
	written := 0
	for {
		switch {
		case h.err != nil:
			return written, h.err
		case h.fin:
			return written, io.ErrClosedPipe
		case h.writes.expired:
			return written, os.ErrDeadlineExceeded
		}
		n := min(len(p)-written, pipeBuffer-len(h.buffer))
		if n > 0 {
			h.buffer = append(h.buffer, p[written:written+n]...)
			written += n
			h.changed.Broadcast()
		}
		if written == len(p) {
			return written, nil
		}
		h.changed.Wait()
	}
}

func (e *pipeEnd) CloseWrite() error {
	e.out.mu.Lock()
	defer e.out.mu.Unlock()
	if e.out.err != nil {
		return e.out.err
	}
	e.out.fin = true
	e.out.changed.Broadcast()
	return nil
}

func (e *pipeEnd) Reset(code wire.Code) {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.fail(&wire.Error{Code: code})
	if !e.out.fin { // a clean end stays one
		e.out.fail(&wire.Error{Code: code})
	}
}

// sever ends both directions because the connection has ended: unread bytes are lost,
// also those before a clean end.
func (e *pipeEnd) sever(err error) {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.fail(err)
	e.out.fail(err)
}

// finished reports whether both directions have ended.
func (e *pipeEnd) finished() bool {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	return e.in.ended() && e.out.ended()
}

func (h *half) ended() bool { return h.err != nil || h.fin && len(h.buffer) == 0 }

func (e *pipeEnd) SetReadDeadline(t time.Time) error {
	e.in.mu.Lock()
	defer e.in.mu.Unlock()
	e.in.reads.set(e.in, t)
	return nil
}

func (e *pipeEnd) SetWriteDeadline(t time.Time) error {
	e.out.mu.Lock()
	defer e.out.mu.Unlock()
	e.out.writes.set(e.out, t)
	return nil
}
