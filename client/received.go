package client

import (
	"sync"

	"github.com/postern-relay/postern/wire"
)

// received is the part of an exec's log that arrived and was not taken yet, whatever circuit
// brought it. The executor sends at most a window more than was acknowledged; a reader that
// would go far over it waits, so that no executor can fill this process's memory.
type received struct {
	limit int

	mu      sync.Mutex
	items   []wire.Event // in order; what was taken is dropped
	size    int          // bytes in items
	begun   bool         // something arrived
	last    uint64       // highest number that arrived, or where an attach begins
	taken   uint64       // highest After of a Read
	dropped uint64       // bytes taken so far
	unacked int          // bytes taken since the last acknowledgement
	acked   uint64       // acknowledged to the executor, on this circuit or before
	origin  uint64       // where the handle began: nothing up to there was ever acknowledged by it
	again   bool         // what was acknowledged before may not have arrived
	epoch   wire.ID      // the log's name
	other   *otherLog    // what the executor has in its place; nil: the log itself
	exit    *wire.ExitStatus
	err     error // nothing more will come
	more    chan struct{}
	room    chan struct{}
}

// cost is what an item takes, with its overhead: see executor's log.
func itemCost(e *wire.Event) int {
	if e.Chunk == nil {
		return 64
	}
	return len(e.Chunk.Data) + 64
}

// add appends what arrived. It waits while there is no room. Numbers must rise.
func (r *received) add(e wire.Event) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.exit != nil {
		return wire.Errorf(wire.CodeProtocol, "output after the exit status")
	}
	from := e.Seq
	if e.Gap != nil {
		from = e.Gap.From
	}
	if r.other != nil {
		show, err := r.other.arrived(from, &e, r.last+1)
		if !show {
			r.unacked += itemCost(&e)
			return err
		}
		from = e.Seq
	}
	if !r.begun && from <= r.last { // attached beyond the end of the log
		r.last = from - 1
		r.taken, r.acked, r.origin = r.last, r.last, r.last
	}
	r.begun = true
	if from != r.last+1 {
		return wire.Errorf(wire.CodeProtocol, "output number %d after %d", e.Seq, r.last)
	}
	for r.size >= r.limit && r.err == nil {
		if r.room == nil {
			r.room = make(chan struct{})
		}
		room := r.room
		r.mu.Unlock()
		<-room
		r.mu.Lock()
	}
	r.items = append(r.items, e)
	r.size += itemCost(&e)
	r.last, r.exit = e.Seq, e.Exit
	wakeAll(&r.more)
	return nil
}

// end says that nothing more will come, and why. The first reason counts.
func (r *received) end(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	wakeAll(&r.more)
	wakeAll(&r.room)
}

// urgency is when an acknowledgement is to be sent.
type urgency int

const (
	never urgency = iota
	soon          // within [wire.AckDelay]: one for all that comes meanwhile
	now
)

// take drops everything up to after, and reports when that is to be acknowledged.
func (r *received) take(after uint64) urgency {
	r.mu.Lock()
	defer r.mu.Unlock()
	after = min(after, r.last)
	n := 0
	for n < len(r.items) && r.items[n].Seq <= after {
		c := itemCost(&r.items[n])
		r.size -= c
		r.unacked += c
		if chunk := r.items[n].Chunk; chunk != nil {
			r.dropped += uint64(len(chunk.Data))
		}
		r.items[n] = wire.Event{}
		n++
	}
	if r.items = r.items[n:]; len(r.items) == 0 {
		r.items = nil
	}
	r.taken = max(r.taken, after)
	if r.size < r.limit {
		wakeAll(&r.room)
	}
	return r.due()
}

// due is when there is something to acknowledge: now where a good part of the window was taken, soon where the reader has
// everything there is. mu is held.
func (r *received) due() urgency {
	switch {
	case r.ackable() <= r.acked:
		return never
	case r.again || r.unacked >= ackEvery:
		return now
	case r.taken == r.last:
		return soon
	}
	return never
}

// ackDue is when there is something to acknowledge.
func (r *received) ackDue() urgency {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due()
}

// ackable is the number in the executor's log up to which nothing is needed any more. mu is held.
func (r *received) ackable() uint64 {
	if r.other != nil {
		return r.other.ackable(r.exit != nil && r.taken == r.last)
	}
	return r.taken
}

// ackEvery is a sixteenth of the window: often enough that a command never waits for
// an acknowledgement while its output is being read.
const ackEvery = wire.OutputWindow / 16

// toAck is the number to acknowledge, zero if nothing is due.
func (r *received) toAck() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.due() == never {
		return 0
	}
	r.acked, r.unacked, r.again = r.ackable(), 0, false
	return r.acked
}

// read returns what follows after. ok is false when there is nothing, and err then says
// whether something can still come.
func (r *received) read(after uint64, limit int) (resp wire.ReadResponse, ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	resp.Next = min(after, r.last)
	if resp.Next < r.taken && (len(r.items) == 0 || r.items[0].Seq > resp.Next+1) {
		resp.Gap = &wire.Gap{From: resp.Next + 1, To: r.taken, Bytes: r.dropped}
		resp.Next = r.taken
	}
	size := 0
	for i := range r.items {
		e := &r.items[i]
		if e.Seq <= resp.Next {
			continue
		}
		switch {
		case e.Gap != nil && (resp.Gap != nil || len(resp.Chunks) > 0): // a gap lies before the chunks
			return resp, true, nil
		case e.Gap != nil:
			resp.Gap = e.Gap
		case e.Chunk != nil:
			if size > 0 && size+len(e.Chunk.Data) > limit {
				return resp, true, nil
			}
			resp.Chunks = append(resp.Chunks, *e.Chunk)
			size += len(e.Chunk.Data)
		case e.Exit != nil:
			resp.Exit = e.Exit
		}
		resp.Next = e.Seq
	}
	if r.exit != nil && resp.Next == r.last {
		resp.Exit = r.exit
	}
	ok = resp.Gap != nil || len(resp.Chunks) > 0 || resp.Exit != nil
	return resp, ok, r.err
}

// wake is closed when something above after has arrived, or nothing more will.
func (r *received) wake(after uint64) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last > after || r.exit != nil || r.err != nil {
		return closedChan
	}
	if r.more == nil {
		r.more = make(chan struct{})
	}
	return r.more
}

// exited reports whether the end of the log is here.
func (r *received) exited() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit != nil
}

// exitStatus is the end of the exec, once it is here.
func (r *received) exitStatus() *wire.ExitStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.exit
}

func (r *received) takenSeq() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.taken
}

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

func wakeAll(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}
