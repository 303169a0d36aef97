package executor

import (
	"io"
	"sync"

	"github.com/postern-relay/postern/wire"
)

// inputQueue is the stdin of an exec: at most a window of bytes that were accepted and
// are not yet written to the command. One goroutine (pump) writes; offers come from the controller.
// Offsets count the whole input, so that a repeated offer is not written twice.
type inputQueue struct {
	window uint64

	mu       sync.Mutex
	chunks   [][]byte // accepted, not written; they begin at written
	gathers  bool     // the last of them is the queue's own, and takes up small ones
	accepted uint64
	written  uint64
	ended    bool          // no more is accepted
	closed   bool          // the command reads no more
	work     chan struct{} // closed when the pump has something to do; nil when it does not wait
	progress chan struct{} // closed when written, closed or the credit changes; nil when nobody waits
	told     uint64        // of the credit, to the client
	credit   chan struct{} // closed when that is to be told anew at once; nil when nobody waits
}

func newInputQueue(window int) *inputQueue { return &inputQueue{window: uint64(window)} }

// offer takes p over, which begins at offset, as far as the credit goes, and returns how much
// of it is now accepted, what was known before included. A hole is an error. The queue owns
// what it accepted.
func (q *inputQueue) offer(offset uint64, p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	have := q.accepted
	end := offset + uint64(len(p))
	switch {
	case end <= have && end >= offset:
		return len(p), nil
	case q.closed || q.ended: // before the next case: what was dropped since leaves holes
		return 0, wire.ErrStdinClosed
	case end < offset || offset > have:
		return 0, wire.Errorf(wire.CodeBadRequest, "input at offset %d leaves a hole after %d", offset, have)
	}
	fresh := p[have-offset:]
	if room := q.written + q.window - have; uint64(len(fresh)) > room {
		fresh = fresh[:room]
	}
	if len(fresh) > 0 {
		q.keep(fresh)
		q.accepted += uint64(len(fresh))
		wakeAll(&q.work)
	}
	return int(have-offset) + len(fresh), nil
}

// smallChunk is what is copied rather than kept: a piece keeps the whole record that it came in, of 256 bytes and more.
const smallChunk = 4 << 10

// keep puts a piece behind the others. What pump writes meanwhile is not touched: a chunk only grows at its end. mu is held.
func (q *inputQueue) keep(piece []byte) {
	last := len(q.chunks) - 1
	switch {
	case len(piece) > smallChunk:
		q.chunks, q.gathers = append(q.chunks, piece), false
	case last >= 0 && q.gathers && len(q.chunks[last])+len(piece) <= wire.MaxChunk:
		q.chunks[last] = append(q.chunks[last], piece...)
	default:
		q.chunks, q.gathers = append(q.chunks, append([]byte(nil), piece...)), true
	}
}

// end accepts nothing after what was accepted.
func (q *inputQueue) end() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.ended || q.closed {
		return nil
	}
	q.ended = true
	wakeAll(&q.work)
	return nil
}

// taken is how much was accepted: where a new controller goes on.
func (q *inputQueue) taken() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.accepted
}

// ack is what an InputAck says.
func (q *inputQueue) ack() inputAck {
	q.mu.Lock()
	defer q.mu.Unlock()
	return inputAck{q.written, q.written + q.window, q.closed}
}

// owing is closed when a client that was last told a limit is to be told its credit at once: a sixteenth of the window has been used,
// or the command reads no more. A client that needs all of the window, on a long path, waits for that part of it.
func (q *inputQueue) owing(limit uint64) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.told = limit
	if q.owes() {
		return closedChan
	}
	if q.credit == nil {
		q.credit = make(chan struct{})
	}
	return q.credit
}

// owes is what owing tells. mu is held.
func (q *inputQueue) owes() bool { return q.closed || q.written+q.window-q.told >= q.owed() }

// owed is how much used credit is told at once.
func (q *inputQueue) owed() uint64 { return q.window / 16 }

// changed is closed at the next progress after this call.
func (q *inputQueue) changed() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.progress == nil {
		q.progress = make(chan struct{})
	}
	return q.progress
}

// pump writes to the command until the input or the command ends, then closes w. onTerminal
// sends the end-of-file character instead, since a terminal has no half-close.
func (q *inputQueue) pump(w io.WriteCloser, terminal bool) {
	atLineStart := true
	for {
		q.mu.Lock()
		for len(q.chunks) == 0 && !q.ended && !q.closed {
			if q.work == nil {
				q.work = make(chan struct{})
			}
			work := q.work
			q.mu.Unlock()
			<-work
			q.mu.Lock()
		}
		var chunk []byte
		if len(q.chunks) > 0 {
			chunk = q.chunks[0]
		}
		closed := q.closed
		q.mu.Unlock()
		if closed {
			break
		}
		if chunk == nil { // ended, and all is written
			if terminal {
				eof := "\x04"
				if !atLineStart {
					eof = "\x04\x04" // the first only hands over the unfinished line
				}
				io.WriteString(w, eof)
			}
			break
		}
		n, err := w.Write(chunk)
		if n > 0 {
			atLineStart = chunk[n-1] == '\n'
		}
		q.wrote(n, err)
	}
	q.shut()
	if !terminal {
		w.Close()
	}
}

func (q *inputQueue) wrote(n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.chunks) > 0 { // else shut has emptied the queue meanwhile
		if q.chunks[0] = q.chunks[0][n:]; len(q.chunks[0]) == 0 {
			q.chunks = q.chunks[1:]
		}
	}
	q.written += uint64(n)
	if err != nil {
		q.closed = true
	}
	wakeAll(&q.progress)
	if q.owes() {
		wakeAll(&q.credit)
	}
}

// shut ends the input for good: the command has closed its end, or has ended.
func (q *inputQueue) shut() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.chunks = nil
	wakeAll(&q.work)
	wakeAll(&q.progress)
	wakeAll(&q.credit)
}
