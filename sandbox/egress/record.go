package egress

import "sync"

// Refusal is a decision against a request, and how often it was taken.
type Refusal struct {
	Decision
	Times int
}

// Record keeps the refusals of a command. Its Add is made for Options.Decided. It is safe
// for concurrent use. The zero value only counts.
type Record struct {
	mu    sync.Mutex
	limit int
	kept  []Refusal
	total int
}

// NewRecord makes a Record that keeps the first limit different refusals.
func NewRecord(limit int) *Record { return &Record{limit: limit} }

// Add takes a decision into account; one for a request is ignored.
func (r *Record) Add(d Decision) {
	if d.Allowed {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total++
	for i := range r.kept {
		if r.kept[i].Decision == d {
			r.kept[i].Times++
			return
		}
	}
	if len(r.kept) < r.limit {
		r.kept = append(r.kept, Refusal{d, 1})
	}
}

// Refused returns the refusals that were kept, in the order in which each first
// happened, and the number of all requests that were refused.
func (r *Record) Refused() (kept []Refusal, total int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(kept, r.kept...), r.total
}
