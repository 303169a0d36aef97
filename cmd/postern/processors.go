package main

import (
	"os"
	"runtime"
)

// shareProcessors is for an end of a connection, an executor or a client, which leaves half of the processors to what it serves. Its
// goroutines hand each small message on to the next; with fewer threads to spread them over, that costs an executor a fifth less
// processor, and a 64 byte echo a sixth less time, an eighth at a client (PERFORMANCE.md). A GOMAXPROCS in the environment goes
// first. It is for a whole process, and later changes of a cgroup's limit are not followed.
func shareProcessors() {
	if _, set := os.LookupEnv("GOMAXPROCS"); !set {
		runtime.GOMAXPROCS(shareOf(runtime.GOMAXPROCS(0)))
	}
}

// shareOf is how many of n processors an end uses.
func shareOf(n int) int { return max(1, n/2) }
