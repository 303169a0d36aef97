package main

import (
	"log/slog"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"

	"github.com/KimMachineGun/automemlimit/memlimit"
)

// Go lets the heap grow to twice what is in use before it collects. For a relay with thousands of idle executors that
// doubles what each costs. So the collector gets the same room whatever is in use, and a part of that only from where it would
// be more.
const (
	collectorRoom  = 8 << 20 // bytes between two collections, while the least of what is in use is less
	collectorLeast = 15      // percent of what is in use
	collectorMost  = 400     // the same: between two collections nobody looks, and what is in use may grow fast
)

// limitMemory makes this process collect its garbage as a relay needs it, and stay below the limit of its cgroup.
// GOGC and GOMEMLIMIT in the environment go first, each for its part. It is for a whole process and never ends.
func limitMemory(log *slog.Logger) {
	// Nine tenths of the cgroup's limit; the rest is for sockets. Where no cgroup is to be seen there is none, not worth a word.
	if limit, err := memlimit.Set(); err == nil && limit < math.MaxInt64 {
		log.Info("memory is limited", "bytes", limit)
	}
	if _, set := os.LookupEnv("GOGC"); !set {
		afterEachCollection(func() { debug.SetGCPercent(collectorPercent(heapInUse())) })
	}
}

// collectorPercent is what GOGC should be with so many bytes in use.
func collectorPercent(inUse uint64) int {
	if inUse == 0 {
		return collectorMost
	}
	return int(max(collectorLeast, min(collectorMost, collectorRoom*100/inUse)))
}

// heapInUse is what the last collection has left, in bytes.
func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachCollection calls do now and after each collection of garbage: one that frees the object made here.
func afterEachCollection(do func()) {
	do()
	runtime.AddCleanup(new([16]byte), afterEachCollection, do) // 16 bytes have a block of their own
}
