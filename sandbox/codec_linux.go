package sandbox

import (
	"encoding/binary"
	"errors"
)

// writer and reader are the encoding between the daemon and the init: unsigned
// varints and length-prefixed byte strings. JSON would not do, since arguments
// and paths need not be UTF-8.
type writer struct{ b []byte }

func (w *writer) num(v uint64)    { w.b = binary.AppendUvarint(w.b, v) }
func (w *writer) signed(v int64)  { w.b = binary.AppendVarint(w.b, v) }
func (w *writer) str(s string)    { w.num(uint64(len(s))); w.b = append(w.b, s...) }
func (w *writer) strs(l []string) { w.num(uint64(len(l))); w.each(l) }
func (w *writer) flag(v bool) {
	if v {
		w.num(1)
		return
	}
	w.num(0)
}

func (w *writer) each(l []string) {
	for _, s := range l {
		w.str(s)
	}
}

var errShort = errors.New("request is cut short")

// reader returns zero values after the first error, which done reports.
type reader struct {
	b   []byte
	err error
}

func (r *reader) num() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) signed() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) str() string {
	n := r.num()
	if n > uint64(len(r.b)) {
		r.fail()
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) strs() []string {
	n := r.count()
	if n == 0 {
		return nil
	}
	l := make([]string, 0, n)
	for range n {
		l = append(l, r.str())
	}
	return l
}

// count reads the length of a list; every element takes at least one byte, which
// bounds what is allocated for it.
func (r *reader) count() int {
	n := r.num()
	if n > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	return int(n)
}

func (r *reader) flag() bool { return r.num() != 0 }

func (r *reader) fail() {
	r.b = nil
	if r.err == nil {
		r.err = errShort
	}
}

func (r *reader) done() error {
	if r.err == nil && len(r.b) != 0 {
		r.err = errors.New("request has trailing bytes")
	}
	return r.err
}
