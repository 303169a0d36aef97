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

// collector is how much a process may have allocated between two collections of garbage: the same room whatever is in use, as GOGC
// has it in percent of that, and within bounds. Between two collections nobody looks, and what is in use may grow fast.
type collector struct {
	room        uint64 // bytes
	least, most uint64 // percent of what is in use
}

var (
	// Go lets the heap grow to twice what is in use. For a relay with thousands of idle executors that doubles what each costs.
	relayCollector = collector{room: 8 << 20, least: 12, most: 400}
	// What a client or an executor has in use is small, so that bulk has Go collect for each few MiB it carries: a sixth of
	// their processor time.
	endCollector = collector{room: 16 << 20, least: 100, most: 400}
)

// limitMemory makes this process collect its garbage as a relay needs it, and stay below the limit of its cgroup.
// GOGC and GOMEMLIMIT in the environment go first, each for its part. It is for a whole process and never ends.
func limitMemory(log *slog.Logger) {
	// Nine tenths of the cgroup's limit; the rest is for sockets. Where no cgroup is to be seen there is none, not worth a word.
	if limit, err := memlimit.Set(); err == nil && limit < math.MaxInt64 {
		log.Info("memory is limited", "bytes", limit)
	}
	relayCollector.use()
}

// use makes this process collect its garbage like that, but for a GOGC in the environment. It never ends.
func (c collector) use() {
	if _, set := os.LookupEnv("GOGC"); !set {
		afterEachCollection(func() { debug.SetGCPercent(c.percent(heapInUse())) })
	}
}

// percent is what GOGC should be with so many bytes in use.
func (c collector) percent(inUse uint64) int {
	if inUse == 0 {
		return int(c.most)
	}
	return int(max(c.least, min(c.most, c.room*100/inUse)))
}

// heapInUse is what the last collection has left, in bytes.
func heapInUse() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// afterEachCollection calls do now and after each collection of garbage: one that frees the object made here.
func afterEachCollection(do func()) {
	runtime.AddCleanup(new([16]byte), afterEachCollection, do) // 16 bytes have a block of their own
	do()
}
