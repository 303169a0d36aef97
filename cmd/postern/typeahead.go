package main

import (
	"io"
	"sync"
)

// maxTypeahead bounds what is typed and cannot be sent; beyond it typing is not read.
const maxTypeahead = 1 << 20

// typeahead is what was typed on a terminal and was not sent yet, without the escapes. Typing is
// read also while nothing can be sent, or an escape would not work just when it is needed.
type typeahead struct {
	escapes escapes
	help    func(text string) // the user wants to know the escapes
	leave   func()            // the user leaves

	mu      sync.Mutex
	changed sync.Cond
	ready   []byte
	left    bool // nothing more comes after ready
}

// typing reads from a terminal in raw mode until the user leaves. A terminal that is gone takes its
// user away: only there can no key end the input.
func typing(r io.Reader, char byte, help func(string), leave func()) *typeahead {
	t := &typeahead{escapes: escapes{char: char}, help: help, leave: leave}
	t.changed.L = &t.mu
	go t.fill(r)
	return t
}

func (t *typeahead) fill(r io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		if t.take(buf[:n], err != nil) {
			t.leave()
			return
		}
	}
}

// take adds what a Read brought, once there is room, and the last of it ends the typing. It reports
// whether the user leaves.
func (t *typeahead) take(typed []byte, last bool) (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(typed) > 0 && !t.left {
		var used int
		var action escapeAction
		t.ready, used, action = t.escapes.filter(t.ready, typed)
		typed = typed[used:]
		switch action {
		case helpAction:
			t.help(t.escapes.help())
		case leaveAction:
			t.left = true
		}
	}
	t.left = t.left || last
	t.changed.Broadcast()
	for len(t.ready) >= maxTypeahead && !t.left {
		t.changed.Wait()
	}
	return t.left
}

// Read waits until something was typed. After the last of it, it fails with errLeft.
func (t *typeahead) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ready) == 0 && !t.left {
		t.changed.Wait()
	}
	if len(t.ready) == 0 {
		return 0, errLeft
	}
	n := copy(p, t.ready)
	if t.ready = t.ready[n:]; len(t.ready) == 0 {
		t.ready = nil
	}
	t.changed.Broadcast()
	return n, nil
}
