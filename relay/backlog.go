package relay

import (
	"io"
	"sync"

	"github.com/postern-relay/postern/wire"
)

// backlog holds what one end of a circuit sent and the other does not take at the moment. All circuits
// of a connection share its window: if a slow circuit's bytes stayed in there, the others
// would stand still with it. What honest ends have under way on a circuit fits, but for input in pieces of less than 250 bytes
// that an executor stops taking: each piece is a record of 256 bytes and more, and its credit counts the bytes of the piece.
type backlog struct {
	budget *budget

	mu     sync.Mutex
	chunks [][]byte
	size   int
	err    error         // of the sender, after the chunks; io.EOF: a clean end
	closed bool          // the receiver takes no more
	more   chan struct{} // closed when there is something to take; nil when nobody waits
	room   chan struct{} // closed when there is room; nil when nobody waits
}

// backlogMost is a window of output and what is sent beside it.
const backlogMost = wire.OutputWindow + 256<<10

// put adds a chunk, which the backlog owns from then on. It waits for room, and reports
// whether the receiver still takes anything. One chunk always has room.
func (b *backlog) put(chunk []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed && b.size > 0 && (b.size+len(chunk) > backlogMost || !b.budget.has(len(chunk))) {
		if b.room == nil {
			b.room = make(chan struct{})
		}
		room := b.room
		b.mu.Unlock()
		<-room
		b.mu.Lock()
	}
	if b.closed {
		return false
	}
	b.budget.add(len(chunk))
	b.chunks = append(b.chunks, chunk)
	b.size += len(chunk)
	wake(&b.more)
	return true
}

// end says that nothing follows what was put, and why.
func (b *backlog) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.err = err
	wake(&b.more)
}

// take waits for the next chunk, or for the sender's end.
func (b *backlog) take() ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.chunks) == 0 && b.err == nil {
		if b.more == nil {
			b.more = make(chan struct{})
		}
		more := b.more
		b.mu.Unlock()
		<-more
		b.mu.Lock()
	}
	if len(b.chunks) == 0 {
		return nil, b.err
	}
	chunk := b.chunks[0]
	b.chunks[0] = nil
	b.chunks = b.chunks[1:]
	b.drop(len(chunk))
	return chunk, nil
}

func (b *backlog) drop(n int) {
	b.size -= n
	b.budget.add(-n)
	wake(&b.room)
}

// close gives everything back; put does not wait any more.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.chunks = nil
	b.drop(b.size)
}

func wake(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}

// budget is the memory that all backlogs of a relay may have together. Where it is used up,
// a slow circuit holds up its neighbours again.
type budget struct {
	most int

	mu   sync.Mutex
	used int
}

func (b *budget) has(n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used+n <= b.most
}

// held is how much is used, for the metric.
func (b *budget) held() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return float64(b.used)
}

func (b *budget) add(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

// copyRelieved is copy for a receiver that has been slow once: from now on a goroutine of its own
// reads from the sender, ahead of what is written. rest is what the receiver did not take yet.
func (s *splice) copyRelieved(to, from wire.Stream, rest []byte) outcome {
	queue := &backlog{budget: s.backlogs}
	queue.put(rest)
	s.relieving.Go(func() { s.readAhead(queue, from) })
	defer queue.close()
	for {
		chunk, err := queue.take()
		if err == nil {
			if err = s.write(to, chunk); err == nil {
				continue
			}
			if isStop(err) {
				return outcome{code: wire.CodeOf(err), stopped: true}
			}
		} else if err == io.EOF {
			if err = to.CloseWrite(); err == nil {
				return outcome{}
			}
		}
		return s.abort(err)
	}
}

func (s *splice) readAhead(queue *backlog, from wire.Stream) {
	count := s.countDown
	if from == s.client {
		count = s.countUp
	}
	for {
		chunk, err := readChunk(from)
		if len(chunk) > 0 {
			s.carry(from, count, len(chunk))
			if !queue.put(append([]byte(nil), chunk...)) {
				err = io.ErrClosedPipe
			}
		}
		release(chunk)
		if err != nil {
			queue.end(err)
			return
		}
	}
}
