package agent

import (
	"errors"
	"io"
	"sync"

	"github.com/postern-relay/postern/wire"
)

// join copies both ways until both have ended: an end is passed on as one, everything else as a reset.
func join(near, far wire.Stream) {
	var up sync.WaitGroup
	up.Go(func() { pass(far, near) })
	pass(near, far)
	up.Wait()
	near.Reset(wire.CodeCancelled)
	far.Reset(wire.CodeCancelled)
}

// pass copies one way. What comes while a write is under way goes out in one piece with the next: a circuit gives a packet's worth at
// a time, and each write wakes the other process.
func pass(to, from wire.Stream) {
	b := newBacklog()
	var reading sync.WaitGroup
	reading.Go(func() {
		buf := make([]byte, maxData)
		for {
			n, err := from.Read(buf)
			if !b.add(buf[:n], err) || err != nil {
				return
			}
		}
	})
	err := b.drain(to)
	if err != io.EOF {
		code := codeOf(err)
		to.Reset(code)
		from.Reset(code)
	}
	b.close()
	reading.Wait()
}

func codeOf(err error) wire.Code {
	if errors.Is(err, wire.ErrLost) {
		return wire.CodeUnknown
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Code
	}
	return wire.CodeCancelled
}

// backlogMost is how much is read ahead of a write, so that who reads slowly slows down who writes.
const backlogMost = 256 << 10

// backlog is what was read and not written yet.
type backlog struct {
	mu      sync.Mutex
	changed *sync.Cond
	bytes   []byte
	err     error // why no more will come; io.EOF for the end
	closed  bool
}

func newBacklog() *backlog {
	b := new(backlog)
	b.changed = sync.NewCond(&b.mu)
	return b
}

// add waits for room, and reports whether more is wanted.
func (b *backlog) add(p []byte, err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.bytes) > 0 && len(b.bytes)+len(p) > backlogMost && !b.closed {
		b.changed.Wait()
	}
	b.bytes, b.err = append(b.bytes, p...), err
	b.changed.Broadcast()
	return !b.closed
}

// drain writes until the end, which it passes on, and returns io.EOF then, or else the error of either side.
func (b *backlog) drain(to wire.Stream) error {
	var out []byte
	for {
		b.mu.Lock()
		for len(b.bytes) == 0 && b.err == nil {
			b.changed.Wait()
		}
		out, b.bytes = b.bytes, out[:0]
		err := b.err
		b.changed.Broadcast()
		b.mu.Unlock()
		if len(out) > 0 {
			if _, werr := to.Write(out); werr != nil {
				return werr
			}
			continue // the error is still there
		}
		if err == io.EOF {
			if cerr := to.CloseWrite(); cerr != nil {
				return cerr
			}
		}
		return err
	}
}

func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.changed.Broadcast()
}
