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
	leave   func()            // the user leaves; Read fails with errLeft after what was typed before

	mu      sync.Mutex
	changed sync.Cond
	ready   []byte
	err     error // after ready
}

// typing reads from r until it fails or the user leaves.
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
		left := t.take(buf[:n], err)
		if left {
			t.leave()
		}
		if left || err != nil {
			return
		}
	}
}

// take adds what a Read brought, once there is room. It reports whether the user leaves.
func (t *typeahead) take(typed []byte, err error) (left bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(typed) > 0 && !left {
		var used int
		var action escapeAction
		t.ready, used, action = t.escapes.filter(t.ready, typed)
		typed = typed[used:]
		switch action {
		case helpAction:
			t.help(t.escapes.help())
		case leaveAction:
			left, err = true, errLeft
		}
	}
	if err != nil {
		t.ready, t.err = t.escapes.flush(t.ready), err
	}
	t.changed.Broadcast()
	for len(t.ready) >= maxTypeahead && t.err == nil {
		t.changed.Wait()
	}
	return left
}

// Read waits until something was typed.
func (t *typeahead) Read(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.ready) == 0 && t.err == nil {
		t.changed.Wait()
	}
	if len(t.ready) == 0 {
		return 0, t.err
	}
	n := copy(p, t.ready)
	if t.ready = t.ready[n:]; len(t.ready) == 0 {
		t.ready = nil
	}
	t.changed.Broadcast()
	return n, nil
}
