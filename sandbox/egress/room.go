package egress

import "sync"

// Room bounds the connections that several proxies have at once, each of which takes two descriptors and some 128 KiB of the
// daemon's. It is safe for concurrent use.
type Room struct {
	mu     sync.Mutex
	left   int
	within *Room
}

// NewRoom is room for so many connections, which count in the outer one too; nil: there is none.
func NewRoom(conns int, within *Room) *Room { return &Room{left: conns, within: within} }

// take takes the place of one connection, if there is one. That of a nil Room there always is.
func (r *Room) take() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.left <= 0 || !r.within.take() {
		return false
	}
	r.left--
	return true
}

// leave gives a place back.
func (r *Room) leave() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left++
	r.within.leave()
}
