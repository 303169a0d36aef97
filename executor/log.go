package executor

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// outputLog is the one ordered log of an exec: numbered chunks, then Exit. The readers of
// the command's pipes append; append blocks while the controller has not acknowledged
// a window's worth, so that the command waits instead of memory growing. Acknowledged
// chunks stay while they are among the newest keep bytes.
//
// Memory is bounded by window + one chunk per pipe + keep, whatever the command prints: a chunk counts
// with its overhead, so that a million one-byte writes are no way around it.
type outputLog struct {
	window, keep int

	mu      sync.Mutex
	epoch   wire.ID
	entries []wire.Chunk // those still kept, in order; numbers have no holes
	first   uint64       // number of entries[0], or of the next chunk
	last    uint64       // highest number given, Exit's included
	acked   uint64
	unacked int    // cost of what lies above acked
	kept    int    // cost of entries
	dropped uint64 // bytes ever dropped from the front
	exit    *wire.ExitStatus
	free    bool          // nobody will acknowledge: append does not wait, the oldest goes
	room    chan struct{} // closed when append may go on; nil when nobody waits
	more    chan struct{} // closed when last rises; nil when nobody waits
}

func newOutputLog(window, keep int) *outputLog {
	return &outputLog{window: window, keep: keep, epoch: wire.ID(wire.NewExecID()), first: 1}
}

// append adds one chunk, which the log owns from then on. It blocks while the window is full.
func (l *outputLog) append(stream wire.OutputStream, data []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unacked >= l.window && !l.free {
		if l.room == nil {
			l.room = make(chan struct{})
		}
		room := l.room
		l.mu.Unlock()
		<-room
		l.mu.Lock()
	}
	l.last++
	l.entries = append(l.entries, wire.Chunk{Seq: l.last, Stream: stream, Data: data})
	l.kept += cost(data)
	l.unacked += cost(data)
	l.trim()
	wakeAll(&l.more)
}

// end adds Exit after all output.
func (l *outputLog) end(status wire.ExitStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.exit = &status
	wakeAll(&l.more)
}

// ack says that the controller's consumer has everything up to seq. It never goes back.
func (l *outputLog) ack(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq = min(seq, l.last)
	for l.acked < seq {
		l.acked++
		if c := l.at(l.acked); c != nil {
			l.unacked -= cost(c.Data)
		}
	}
	l.trim()
	if l.unacked < l.window {
		wakeAll(&l.room)
	}
}

// setFree lets append go on without acknowledgements (true), or wait for them again.
func (l *outputLog) setFree(free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = free
	l.trim()
	if free {
		wakeAll(&l.room)
	}
}

// at is the kept chunk of this number, nil if it is dropped or is Exit.
func (l *outputLog) at(seq uint64) *wire.Chunk {
	if seq < l.first || seq-l.first >= uint64(len(l.entries)) {
		return nil
	}
	return &l.entries[seq-l.first]
}

// trim drops from the front what need not be kept.
func (l *outputLog) trim() {
	limit := l.keep
	n := 0
	for n < len(l.entries) {
		c := &l.entries[n]
		unacked := c.Seq > l.acked
		if l.kept-cost(c.Data) < limit || unacked && (!l.free || l.kept <= l.window) {
			break
		}
		if unacked {
			l.unacked -= cost(c.Data)
			l.acked = c.Seq // gone: nothing is left to acknowledge
		}
		l.kept -= cost(c.Data)
		l.dropped += uint64(len(c.Data))
		c.Data = nil
		n++
	}
	l.entries = l.entries[n:]
	l.first += uint64(n)
	if len(l.entries) == 0 {
		l.entries = nil
	}
}

// read returns what follows after, about limit bytes of it and at least one chunk. A gap counts
// all bytes that were ever dropped. It never waits.
func (l *outputLog) read(after uint64, limit int) wire.ReadResponse {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := wire.ReadResponse{Next: min(after, l.last)}
	if r.Next+1 < l.first {
		gap := &wire.Gap{From: r.Next + 1, To: l.first - 1, Bytes: l.dropped}
		r.Gap, r.Next = gap, gap.To
	}
	for size := 0; ; {
		c := l.at(r.Next + 1)
		if c == nil || size > 0 && size+len(c.Data) > limit {
			break
		}
		r.Chunks = append(r.Chunks, *c)
		r.Next = c.Seq
		size += len(c.Data)
	}
	if l.exit != nil && r.Next+1 == l.last {
		r.Next = l.last
	}
	if l.exit != nil && r.Next == l.last {
		r.Exit = l.exit
	}
	return r
}

// position is a place in the log: after the chunk of this number, which ends this many bytes
// after the beginning.
type position struct{ seq, bytes uint64 }

// position is the place after seq. What was dropped before is not known chunk by chunk: for
// a place in it bytes is zero, so that a gap after it says more than was lost rather than less.
func (l *outputLog) position(seq uint64) position {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := position{seq: seq}
	if seq+1 < l.first {
		return p
	}
	p.bytes = l.dropped
	for n := l.first; n <= seq; n++ {
		c := l.at(n)
		if c == nil {
			break
		}
		p.bytes += uint64(len(c.Data))
	}
	return p
}

// readFrom is read for who goes on from where it was: a gap counts what lies in it only.
func (l *outputLog) readFrom(p position, limit int) (wire.ReadResponse, position) {
	r := l.read(p.seq, limit)
	p.seq = r.Next
	if r.Gap != nil {
		r.Gap.Bytes -= min(p.bytes, r.Gap.Bytes)
		p.bytes += r.Gap.Bytes
	}
	for _, c := range r.Chunks {
		p.bytes += uint64(len(c.Data))
	}
	return r, p
}

// wake is closed when a number above after exists.
func (l *outputLog) wake(after uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last > after || l.exit != nil {
		return closedChan
	}
	if l.more == nil {
		l.more = make(chan struct{})
	}
	return l.more
}

// ackedSeq is the highest acknowledged number.
func (l *outputLog) ackedSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// lastSeq is the highest number given.
func (l *outputLog) lastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// exitStatus is nil until the command has ended and all output is in the log.
func (l *outputLog) exitStatus() *wire.ExitStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exit
}

// cost is what a chunk takes, with its entry and the allocator's rounding.
func cost(data []byte) int { return len(data) + 64 }

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func wakeAll(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}
