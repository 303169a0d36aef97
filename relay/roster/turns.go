package roster

import (
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// How many changes of one tenant may be under way or wait: what its members ask for, and the machines that join, which come
// in fleets, and each of which keeps one of the relay's handshakes waiting. Neither takes the other's places.
const (
	maxAsked = 16
	maxJoins = 64
)

// turns lets the members of a tenant change the list one after the other: a tenant that asks for many changes, each of which costs a
// write to disk, waits for itself, and the others wait for one of its changes at most. The zero value is ready.
type turns struct {
	mu sync.Mutex
	of map[string]*turn
}

type turn struct {
	taken chan struct{} // has a value while it is
	users [2]int        // who has it and who waits, of those that ask and those that join
}

// take waits for the tenant's turn, which lasts until done is called. When most wait already it refuses.
func (t *turns) take(tenant string, joining bool) (done func(), err *wire.Error) {
	t.mu.Lock()
	if t.of == nil {
		t.of = make(map[string]*turn)
	}
	kind, most := 0, maxAsked
	if joining {
		kind, most = 1, maxJoins
	}
	mine := t.of[tenant]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		t.of[tenant] = mine
	}
	if mine.users[kind] >= most {
		t.mu.Unlock()
		return nil, &wire.Error{Code: wire.CodeBusy, RetryAfter: time.Second, Text: "this tenant changes the relay's list too often: try again"}
	}
	mine.users[kind]++
	t.mu.Unlock()
	mine.taken <- struct{}{}
	return func() {
		<-mine.taken
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.users[kind]--; mine.users == [2]int{} {
			delete(t.of, tenant)
		}
	}, nil
}
