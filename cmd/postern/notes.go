package main

import (
	"fmt"
	"io"
	"sync/atomic"
)

// notes are postern's own lines about an exec. They go to stderr, so that stdout is the
// command's alone. It is safe for concurrent use.
type notes struct {
	w     io.Writer
	quiet bool
	raw   atomic.Bool // the terminal is in raw mode: a line has to end, and to begin, with CR
}

// say writes one line, but with -q nothing.
func (n *notes) say(format string, args ...any) {
	if !n.quiet {
		n.warn(format, args...)
	}
}

// warn writes one line in any case.
func (n *notes) warn(format string, args ...any) {
	n.write("postern: " + oneLine(fmt.Sprintf(format, args...)))
}

// write puts a text on lines of its own.
func (n *notes) write(text string) {
	begin, end := "", "\n"
	if n.raw.Load() {
		begin, end = "\r\n", "\r\n"
	}
	fmt.Fprint(n.w, begin+text+end)
}
