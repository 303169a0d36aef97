package roster

import (
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// How many changes of one tenant may be under way or wait, when another one comes. Machines that join come in fleets; what a
// client asks for leaves room for them.
const (
	maxAsked = 16
	maxJoins = 256
)

// turns lets the members of a tenant change the list one after the other: a tenant that asks for many changes, each of which costs a
// write to disk, waits for itself, and the others wait for one of its changes at most. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{} // has a value while it is
	users int           // who has it and who waits
}

// take waits for the tenant's turn, which lasts until done is called. When most wait already it refuses.
func (t *turns) take(tenant string, most int) (done func(), err *wire.Error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[string]*turn)
	}
	mine := t.of[tenant]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		t.of[tenant] = mine
	}
	if mine.users >= most {
		t.mu.Unlock()
		return nil, &wire.Error{Code: wire.CodeBusy, RetryAfter: time.Second, Text: "this tenant changes the relay's list too often: try again"}
	}
	mine.users++
	t.mu.Unlock()
	mine.taken <- struct{}{}
	return func() {
		<-mine.taken
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users--; mine.users == 0 {
			delete(t.of, tenant)
		}
	}, nil
}
