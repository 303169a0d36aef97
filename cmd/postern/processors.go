package main

import (
	"os"
	"runtime"
)

// shareProcessors leaves half of the processors to the commands. An executor's goroutines hand each small message on to the
// next; with fewer threads to spread them over, that costs it a fifth less processor and a 64 byte echo a sixth less time
// (PERFORMANCE.md). A GOMAXPROCS in the environment goes first. It is for a whole process, and
// later changes of a cgroup's limit are not followed.
func shareProcessors() {
	if _, set := os.LookupEnv("GOMAXPROCS"); !set {
		runtime.GOMAXPROCS(executorProcessors(runtime.GOMAXPROCS(0)))
	}
}

// executorProcessors is how many of n are the executor's.
func executorProcessors(n int) int { return max(1, n/2) }
