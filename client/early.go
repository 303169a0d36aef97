package client

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// earlyCircuit is a circuit that is asked for behind the last message of the handshake with the relay, a round trip before its
// welcome. The relay looks at no other stream of a connection before it has admitted it, so that nothing is carried out sooner; what is
// written meanwhile just waits there. Where the relay refuses that connection and takes the next one, what was written is
// written again: it has reached nobody.
type earlyCircuit struct {
	link     *link
	attempt  *attempt
	executor keys.PublicKey

	mu      sync.Mutex
	stream  wire.Stream
	on      wire.Transport // of stream
	sent    []byte         // all that was written, until the welcome
	settled bool           // the welcome, or the refusal, was seen
	err     error          // the refusal
	gone    chan struct{}  // closed by Reset
	reset   bool

	deadline *time.Timer // of Read, while it waits for the welcome
	expired  chan struct{}
}

// maxEarly bounds what is kept to be written again: the first message of a channel, and the input that may follow it.
const maxEarly = wire.MaxStart + 128<<10

// linkError is why there is no connection to the relay, for whoever reads a circuit that was asked for early.
type linkError struct{ error }

func (e *linkError) Unwrap() error { return e.error }

// openEarly asks for a circuit on a connection that is not admitted yet; nil where that cannot be done.
func (l *link) openEarly(ctx context.Context, a *attempt, executor keys.PublicKey) *earlyCircuit {
	l.mu.Lock()
	t := a.transport
	l.mu.Unlock()
	s, err := askForCircuit(ctx, t, executor)
	if err != nil {
		return nil
	}
	return &earlyCircuit{link: l, attempt: a, executor: executor, stream: s, on: t, gone: make(chan struct{}), expired: make(chan struct{})}
}

// Read waits for the welcome before it reads.
func (c *earlyCircuit) Read(p []byte) (int, error) {
	s, err := c.admitted()
	if err != nil {
		return 0, err
	}
	return s.Read(p)
}

// admitted is the stream once the relay has admitted its connection.
func (c *earlyCircuit) admitted() (wire.Stream, error) {
	c.mu.Lock()
	if c.settled {
		defer c.mu.Unlock()
		return c.stream, c.err
	}
	expired := c.expired
	c.mu.Unlock()
	select {
	case <-c.attempt.done:
	case <-c.gone:
		return nil, wire.Errorf(wire.CodeCancelled, "the circuit was given up")
	case <-expired:
		return nil, os.ErrDeadlineExceeded
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		c.settled = true
		c.settle()
	}
	return c.stream, c.err
}

// settle takes note of how the attempt ended. Callers hold mu.
func (c *earlyCircuit) settle() {
	sent := c.sent
	c.sent = nil
	switch {
	case c.attempt.err != nil:
		if c.err = c.attempt.err; c.refused() {
			c.err = &linkError{c.attempt.err}
		} else if !errors.Is(c.err, wire.ErrLost) {
			c.err = fmt.Errorf("%w (%w)", c.err, wire.ErrLost)
		}
		return
	case c.attempt.hop.Transport == c.on || c.reset:
		return
	}
	ctx, cancel := context.WithTimeout(c.link.ctx, wire.HandshakeTimeout)
	defer cancel()
	s, err := askForCircuit(ctx, c.attempt.hop.Transport, c.executor)
	if err == nil && len(sent) > maxEarly {
		s.Reset(wire.CodeCancelled)
		err = wire.ErrLost
	}
	if err != nil {
		c.err = &linkError{err}
		return
	}
	c.stream, c.on = s, c.attempt.hop.Transport
	if len(sent) > 0 {
		// This connection is admitted: what a write has carried that failed may have been carried out.
		_, c.err = s.Write(sent)
	}
}

// refused reports whether the relay has said no to this very connection. One that was lost may have been admitted, its welcome on the
// way, and may have carried what was written. Callers hold mu.
func (c *earlyCircuit) refused() bool {
	c.link.mu.Lock()
	last := c.attempt.transport
	c.link.mu.Unlock()
	_, said := errors.AsType[*wire.Error](c.attempt.err)
	return said && last == c.on && !errors.Is(c.attempt.err, wire.ErrLost)
}

// Write implements wire.Stream.
func (c *earlyCircuit) Write(p []byte) (int, error) {
	c.mu.Lock()
	if !c.settled && len(c.sent) <= maxEarly {
		c.sent = append(c.sent, p...)
	}
	s, settled := c.stream, c.settled
	c.mu.Unlock()
	n, err := s.Write(p)
	if err == nil || settled {
		return n, err
	}
	// The connection may have been refused meanwhile, which says more; or another one was taken, and has got p.
	now, refused := c.admitted()
	switch {
	case refused != nil:
		return 0, refused
	case now != s:
		return len(p), nil
	}
	return n, err
}

// CloseWrite implements wire.Stream. Nothing ends before it was answered.
func (c *earlyCircuit) CloseWrite() error {
	s, err := c.admitted()
	if err != nil {
		return err
	}
	return s.CloseWrite()
}

// Reset implements wire.Stream.
func (c *earlyCircuit) Reset(code wire.Code) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reset {
		c.reset = true
		close(c.gone)
	}
	c.stream.Reset(code)
}

// SetReadDeadline implements wire.Stream.
func (c *earlyCircuit) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.settled {
		if c.deadline != nil && !c.deadline.Stop() {
			c.expired = make(chan struct{})
		}
		c.deadline = nil
		if !t.IsZero() {
			expired := c.expired
			c.deadline = time.AfterFunc(time.Until(t), func() { close(expired) })
		}
	}
	return c.stream.SetReadDeadline(t)
}

// SetWriteDeadline implements wire.Stream.
func (c *earlyCircuit) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stream.SetWriteDeadline(t)
}
