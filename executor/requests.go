package executor

import (
	"maps"
	"slices"

	"github.com/postern-relay/postern/wire"
)

// requests are what client instances asked of one exec: each number acts once, and gets the
// same answer whenever it comes again.
type requests struct {
	byInstance map[wire.ID]*answered
}

// answered are the latest answers to one instance. Numbers up to floor were answered long ago: a
// client waits for no more than maxReplies at a time.
type answered struct {
	errs  map[uint64]error
	floor uint64
}

// maxInstances bounds what is remembered: forgetting allows only a held-back request of an
// instance among so many to act late, and its circuit has ended long before.
const maxInstances = 1024

// request carries out do where this number of the instance is new.
func (x *execution) request(instance wire.ID, number uint64, do func() error) error {
	x.mu.Lock()
	r := &x.requests
	if r.byInstance == nil {
		r.byInstance = make(map[wire.ID]*answered)
	}
	a := r.byInstance[instance]
	if a == nil {
		for other := range r.byInstance { // any one
			if len(r.byInstance) < maxInstances {
				break
			}
			delete(r.byInstance, other)
		}
		a = &answered{errs: make(map[uint64]error)}
		r.byInstance[instance] = a
	}
	err, known := a.errs[number]
	if known || number <= a.floor {
		x.mu.Unlock()
		return err
	}
	a.errs[number] = nil
	if len(a.errs) > 2*maxReplies {
		a.forget(maxReplies)
	}
	x.mu.Unlock()

	err = do()
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, kept := a.errs[number]; kept {
		a.errs[number] = err
	}
	return err
}

// forget drops the n lowest numbers.
func (a *answered) forget(n int) {
	for _, number := range slices.Sorted(maps.Keys(a.errs))[:n] {
		delete(a.errs, number)
		a.floor = number
	}
}
