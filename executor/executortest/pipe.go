package executortest

import (
	"io"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeSize is how much a pipe holds before its writer waits; Linux has as much (pipe(7)).
const pipeSize = 64 << 10

// pipe is a pipe as the kernel has them. It uses no goroutine, so that a test's clock can go on
// while both ends wait, and nothing is left behind.
type pipe struct {
	mu       sync.Mutex
	changed  *sync.Cond
	buf      []byte
	noWriter bool // the reader gets io.EOF after what is there
	noReader bool // the writer gets EPIPE
	failed   bool // the writer was killed: Write fails, what is there stays readable
	late     bool // the read deadline has passed
	timer    *time.Timer
}

func newPipe() *pipe {
	p := &pipe{}
	p.changed = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) set(flag *bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*flag = true
	p.changed.Broadcast()
}

func (p *pipe) closeWrite() { p.set(&p.noWriter) }
func (p *pipe) fail()       { p.set(&p.failed) }

func (p *pipe) closeRead() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noReader, p.buf = true, nil
	if p.timer != nil {
		p.timer.Stop()
	}
	p.changed.Broadcast()
}

// reader is the reading end.
type reader struct{ p *pipe }

func (r reader) Read(b []byte) (int, error) {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.noReader:
			return 0, os.ErrClosed
		case p.late:
			return 0, os.ErrDeadlineExceeded
		case len(p.buf) > 0:
			n := copy(b, p.buf)
			p.buf = p.buf[n:]
			p.changed.Broadcast()
			return n, nil
		case p.noWriter:
			return 0, io.EOF
		}
		p.changed.Wait()
	}
}

func (r reader) Close() error {
	r.p.closeRead()
	return nil
}

// SetReadDeadline bounds Read, one that waits already included; zero is no bound.
func (r reader) SetReadDeadline(t time.Time) error {
	p := r.p
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.late = false
	if p.noReader {
		return os.ErrClosed
	}
	if t.IsZero() {
		return nil
	}
	wait := time.Until(t)
	if wait <= 0 {
		p.late = true
		p.changed.Broadcast()
		return nil
	}
	var timer *time.Timer
	timer = time.AfterFunc(wait, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.timer == timer { // else a newer deadline came while this one fired
			p.late = true
			p.changed.Broadcast()
		}
	})
	p.timer = timer
	return nil
}

// writer is the writing end.
type writer struct{ p *pipe }

func (w writer) Write(b []byte) (int, error) {
	p := w.p
	p.mu.Lock()
	defer p.mu.Unlock()
	written := 0
	for {
		switch {
		case p.noReader || p.failed:
			return written, syscall.EPIPE
		case p.noWriter:
			return written, os.ErrClosed
		case written == len(b):
			return written, nil
		}
		if n := min(len(b)-written, pipeSize-len(p.buf)); n > 0 {
			p.buf = append(p.buf, b[written:written+n]...)
			written += n
			p.changed.Broadcast()
			continue
		}
		p.changed.Wait()
	}
}

func (w writer) Close() error {
	w.p.closeWrite()
	return nil
}
