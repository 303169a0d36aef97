package executor

import "sync"

// tailBytes is how much of the last output is looked at when a command has failed, of each stream.
const tailBytes = 8 << 10

// tail keeps the last bytes of a stream. The zero value is empty and holds no memory.
type tail struct {
	mu   sync.Mutex
	last []byte // at most 2*tailBytes, so that it is moved seldom
}

func (t *tail) add(b []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(b) > tailBytes {
		b = b[len(b)-tailBytes:]
	}
	if len(t.last)+len(b) > 2*tailBytes {
		t.last = t.last[:copy(t.last, t.last[len(t.last)-tailBytes:])]
	}
	t.last = append(t.last, b...)
}

// bytes are the last ones; nobody adds any more.
func (t *tail) bytes() []byte { return t.last[max(0, len(t.last)-tailBytes):] }
