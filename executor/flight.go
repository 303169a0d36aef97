package executor

import "github.com/postern-relay/postern/wire"

// flight is the output of one channel that was sent and not acknowledged. It is bounded, for viewers
// too: what a client that has gone does not take would stay in the relay, and there share the
// windows of everybody else's circuits with this executor.
type flight struct {
	groups []flightGroup // in order
	size   int
	acked  uint64
}

// flightGroup is some chunks in a row: enough of them that the list stays short whatever
// their size.
type flightGroup struct {
	last uint64
	size int
}

const flightGroupSize = wire.OutputWindow / 256

// full: nothing more may be sent before an acknowledgement. A chunk may go over the limit, so that
// one always fits.
func (f *flight) full() bool { return f.size >= wire.OutputWindow }

// add counts what was sent up to a number.
func (f *flight) add(seq uint64, bytes int) {
	size := bytes + messageOverhead
	f.size += size
	if n := len(f.groups); n > 0 && f.groups[n-1].size < flightGroupSize {
		f.groups[n-1].last = seq
		f.groups[n-1].size += size
		return
	}
	f.groups = append(f.groups, flightGroup{seq, size})
}

// messageOverhead is about what a message costs besides its data.
const messageOverhead = 64

// ack takes off what is acknowledged. It never goes back.
func (f *flight) ack(seq uint64) {
	f.acked = max(f.acked, seq)
	n := 0
	for n < len(f.groups) && f.groups[n].last <= f.acked {
		f.size -= f.groups[n].size
		n++
	}
	if f.groups = f.groups[n:]; len(f.groups) == 0 {
		f.groups = nil
	}
}
