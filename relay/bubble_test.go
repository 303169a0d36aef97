package relay_test

import (
	"bytes"
	"runtime"
)

// inThisBubble counts the goroutines of the synctest bubble that it is called in. Those outside are not the test's: the runtime's own
// run when a collection has found something to do.
func inThisBubble() int {
	own := make([]byte, 256)
	head, _, _ := bytes.Cut(own[:runtime.Stack(own, false)], []byte("\n")) // goroutine 35 [running, synctest bubble 12]:
	_, bubble, found := bytes.Cut(head, []byte("synctest bubble "))
	if !found {
		panic("not in a bubble")
	}
	number, _, _ := bytes.Cut(bubble, []byte("]"))
	for all := make([]byte, 1<<20); ; all = make([]byte, 2*len(all)) {
		if n := runtime.Stack(all, true); n < len(all) {
			return bytes.Count(all[:n], append(append([]byte("synctest bubble "), number...), ']'))
		}
	}
}
