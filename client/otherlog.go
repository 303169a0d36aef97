package client

import "github.com/postern-relay/postern/wire"

// otherLog is what an executor that lost an exec's log has in its place. Its numbers begin anew,
// so its output cannot be shown as a continuation: only its end is of use.
type otherLog struct {
	last  uint64 // highest number that arrived
	ended bool   // it was Exit's
}

// arrived takes note of e, which begins at a number. It reports whether e is to be shown, and
// then gives it the number that it has for the consumer.
func (o *otherLog) arrived(from uint64, e *wire.Event, number uint64) (show bool, err error) {
	if from != o.last+1 {
		return false, wire.Errorf(wire.CodeProtocol, "output number %d after %d", e.Seq, o.last)
	}
	o.last = e.Seq
	if e.Exit == nil {
		return false, nil
	}
	o.ended, e.Seq = true, number
	return true, nil
}

// ackable is the number up to which nothing is needed any more. Output is not; Exit is until it
// was taken.
func (o *otherLog) ackable(exitTaken bool) uint64 {
	if o.ended && !exitTaken {
		return o.last - 1
	}
	return o.last
}

// position is where another circuit goes on: the highest number that arrived, in which log.
func (r *received) position() (after uint64, epoch wire.ID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.other != nil {
		return r.other.last, r.epoch
	}
	return r.last, r.epoch
}

// goOn says which log another circuit brings. Where it is not the one that was being read, a gap
// of unknown size stands for the rest of that. It waits for room as add does.
func (r *received) goOn(epoch wire.ID) error {
	r.mu.Lock()
	r.again = true
	r.acked = r.origin
	if r.other != nil {
		r.acked = 0
	}
	if epoch == r.epoch {
		r.mu.Unlock()
		return nil
	}
	r.epoch = epoch
	first, gap := r.other == nil, r.last+1
	r.mu.Unlock()
	var err error
	if first {
		err = r.add(wire.Event{Seq: gap, Gap: &wire.Gap{From: gap, To: gap}})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other, r.acked, r.unacked = new(otherLog), 0, 0
	return err
}

// skips reports whether output that arrives now is not shown.
func (r *received) skips() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.other != nil
}
