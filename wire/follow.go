package wire

import (
	"context"
	"iter"
	"time"
)

// longPoll is how long one Read of the helpers waits; the context ends it earlier.
const longPoll = time.Hour

// Events is ExecProcess.Events over Read, for those who implement the interface.
func Events(ctx context.Context, p ExecProcess, after uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			r, err := p.Read(ctx, ReadRequest{After: after, Wait: longPoll})
			if err != nil {
				yield(Event{Seq: after}, err)
				return
			}
			if r.Gap != nil && !yield(Event{Seq: r.Gap.To, Gap: r.Gap}, nil) {
				return
			}
			for i := range r.Chunks {
				if c := &r.Chunks[i]; !yield(Event{Seq: c.Seq, Chunk: c}, nil) {
					return
				}
			}
			if after = r.Next; r.Exit != nil {
				yield(Event{Seq: r.Next, Exit: r.Exit}, nil)
				return
			}
		}
	}
}

// WaitExit is ExecProcess.Wait over Read: it discards what comes after a number.
func WaitExit(ctx context.Context, p ExecProcess, after uint64) (ExitStatus, error) {
	for {
		r, err := p.Read(ctx, ReadRequest{After: after, Wait: longPoll, MaxBytes: OutputWindow})
		if err != nil {
			return ExitStatus{}, err
		}
		if after = r.Next; r.Exit != nil {
			// One more Read acknowledges Exit, so that nothing need be kept for us.
			_, _ = p.Read(ctx, ReadRequest{After: after})
			return *r.Exit, nil
		}
	}
}
