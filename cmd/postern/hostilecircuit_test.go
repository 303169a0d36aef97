package main

import (
	"io"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// treatment is what a hostile relay does with a circuit. The zero value passes it on as it should be.
type treatment struct {
	hold  time.Duration // nothing reaches the executor before
	after int           // so many bytes are passed on, and nothing more for
	pause time.Duration
	copy  bool      // another circuit gets the same bytes at the same time, before this one; its answers go nowhere
	deaf  bool      // the client gets no answer
	stall int       // the client gets so many bytes, and then nothing more; zero: all
	cut   int       // both ends are cut when so many bytes have come from the executor; zero: they are not
	reply wire.Code // the relay tells the client that there is no circuit, and passes it on
	say   []byte    // the client gets this for the executor's answer, and nothing more
}

// recording is what the client sent on a circuit.
type recording struct {
	n int

	mu      sync.Mutex
	bytes   []byte
	came    []arrival
	passed  bool // the executor has got everything that had come
	muted   bool // nothing of the executor's is passed on any more
	limited bool // no more than limit bytes are passed on
	limit   int
	end     error         // io.EOF for FIN; how the client ended it
	changed chan struct{} // closed when there is more
}

type arrival struct {
	at  time.Time
	end int // of the bytes that have come by then
}

func (c *recording) record(s wire.Stream) {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.Read(buf)
		c.mu.Lock()
		c.bytes = append(c.bytes, buf[:n]...)
		c.came = append(c.came, arrival{time.Now(), len(c.bytes)})
		c.end = err
		c.wake()
		c.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// wake needs mu.
func (c *recording) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// from is what may be passed on after a place, when there will be more, and how it ended, if it has.
func (c *recording) from(at int) ([]byte, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limited {
		return c.bytes[at:max(at, c.limit)], c.changed, nil
	}
	return c.bytes[at:], c.changed, c.end
}

// all is what was recorded.
func (c *recording) all() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.bytes
}

// lag lets no byte pass that has come less than d ago; it is for callers that say it again and again.
func (c *recording) lag(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited = true
	for _, a := range c.came {
		if time.Since(a.at) >= d {
			c.limit = max(c.limit, a.end)
		}
	}
	c.wake()
}

// stall lets nothing more pass than could already, release everything.
func (c *recording) stall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.limited {
		c.limited, c.limit = true, len(c.bytes)
	}
}

// mute keeps everything from the client that is still to come.
func (c *recording) mute() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.muted = true
}

func (c *recording) setPassed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.passed = c.passed || !c.limited
}

func (c *recording) hasPassed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.passed
}

func (c *recording) isMuted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.muted
}

func (c *recording) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.limited = false
	c.wake()
}

// wait lets d pass, and reports whether the relay is still there.
func (r *hostileRelay) wait(d time.Duration) bool {
	if d <= 0 {
		return r.ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ctx.Done():
		return false
	}
}

func (r *hostileRelay) treatCircuit(rec *recording, s wire.Stream, how treatment) {
	if how.reply == 0 && how.say == nil && !how.deaf {
		wire.WriteFrame(s, &wire.DialReply{})
	}
	quiet := how.deaf || how.reply != 0 || how.say != nil
	if !r.wait(how.hold) {
		s.Reset(wire.CodeShutdown)
		return
	}
	if how.copy {
		if to := r.toExecutor(); to != nil {
			r.running.Go(func() { r.passUp(rec, to, how) })
			r.running.Go(func() { io.Copy(io.Discard, to) })
			r.wait(time.Millisecond)
		}
	}
	to := r.toExecutor()
	if to == nil {
		s.Reset(wire.CodeUnreachable)
		return
	}
	r.running.Go(func() { r.passUp(rec, to, how) })
	if how.reply != 0 || how.say != nil {
		r.wait(time.Millisecond) // by now the executor has all that the client sends before it reads this
		wire.WriteFrame(s, &wire.DialReply{Code: how.reply})
		s.Write(how.say)
		s.CloseWrite()
	}
	buf := make([]byte, 32<<10)
	for passed := 0; ; {
		n, err := to.Read(buf)
		passed += n
		quiet = quiet || how.stall > 0 && passed > how.stall
		quiet = quiet || rec.isMuted()
		if how.cut > 0 && passed >= how.cut {
			s.Reset(wire.CodeUnknown)
			to.Reset(wire.CodeUnknown)
			return
		}
		if !quiet && n > 0 {
			s.Write(buf[:n]) // the executor is not told that the client has gone: who knows
		}
		if err == io.EOF && !quiet {
			s.CloseWrite()
		}
		if err != nil {
			if err != io.EOF && !quiet {
				s.Reset(wire.CodeOf(err))
			}
			return
		}
	}
}

// passUp sends to the executor what the client has sent and sends, until one of them has ended.
func (r *hostileRelay) passUp(rec *recording, to wire.Stream, how treatment) {
	for at := 0; ; {
		b, changed, end := rec.from(at)
		if len(b) == 0 && at > 0 {
			rec.setPassed()
		}
		if how.pause > 0 && at < how.after {
			b = b[:min(len(b), how.after-at)]
		}
		if len(b) > 0 {
			if _, err := to.Write(b); err != nil {
				return
			}
			at += len(b)
			if how.pause > 0 && at == how.after && !r.wait(how.pause) {
				return
			}
			continue
		}
		switch end {
		case nil:
		case io.EOF:
			to.CloseWrite()
			return
		default: // a reset; a held circuit has its effect first, if it has any
			r.wait(time.Millisecond)
			to.Reset(wire.CodeCancelled)
			return
		}
		select {
		case <-changed:
		case <-r.ctx.Done():
			to.Reset(wire.CodeShutdown)
			return
		}
	}
}

// replay sends all of a recorded circuit to the executor, and returns what it answers.
func (r *hostileRelay) replay(rec *recording) []byte {
	to := r.toExecutor()
	if to == nil {
		return nil
	}
	to.Write(rec.all())
	to.SetReadDeadline(time.Now().Add(2 * wire.PingSilence)) // longer than any executor waits for more
	answer, _ := io.ReadAll(to)
	to.Reset(wire.CodeCancelled)
	return answer
}
