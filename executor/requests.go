package executor

import "github.com/postern-relay/postern/wire"

// requests are what client instances asked of one exec: each number acts once, and gets the
// same answer whenever it comes again. Numbers of an instance only rise.
type requests struct {
	byInstance map[wire.ID]*answered
}

// answered are the latest answers to one instance. What is older was answered long ago, since a
// client waits for no more than maxReplies at a time.
type answered struct {
	highest uint64
	errs    map[uint64]error
}

// maxInstances bounds what is remembered: forgetting allows only a held-back request of an
// instance among so many to act late, and its circuit has ended long before.
const maxInstances = 1024

// request carries out do where this number of the instance is new. Callers of one instance
// come one after the other; do may be called while others hold x.mu.
func (x *execution) request(instance wire.ID, number uint64, do func() error) error {
	x.mu.Lock()
	r := &x.requests
	if r.byInstance == nil || len(r.byInstance) >= maxInstances {
		r.byInstance = make(map[wire.ID]*answered)
	}
	a := r.byInstance[instance]
	if a == nil {
		a = &answered{errs: make(map[uint64]error)}
		r.byInstance[instance] = a
	}
	if number <= a.highest {
		err := a.errs[number]
		x.mu.Unlock()
		return err
	}
	a.highest = number
	x.mu.Unlock()

	err := do()
	x.mu.Lock()
	defer x.mu.Unlock()
	if err != nil {
		a.errs[number] = err
	}
	for n := range a.errs {
		if n+maxReplies < number {
			delete(a.errs, n)
		}
	}
	return err
}
