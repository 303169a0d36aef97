package quicconn

import (
	"math"
	"runtime/debug"
)

// budget is a sum of bytes that many share. Its owner locks; the zero value has nothing
// to give.
type budget struct{ most, used uint64 }

// take reports whether there was enough, and takes all of it or nothing.
func (b *budget) take(n uint64) bool {
	if n > b.most-b.used {
		return false
	}
	b.used += n
	return true
}

func (b *budget) give(n uint64) { b.used -= n }

// windowBudget is what the option asks for: itself, nothing if it is negative, and a
// share of this machine's memory if it is zero.
func windowBudget(option int64) uint64 {
	switch {
	case option > 0:
		return uint64(option)
	case option < 0:
		return 0
	}
	return memoryShare(physicalMemory(), debug.SetMemoryLimit(-1))
}

// memoryShare is the default budget, of the memory that the machine has (zero: unknown)
// and of what Go was told to stay below (GOMEMLIMIT), which is how a container or a unit
// with a limit of its own says so.
func memoryShare(physical uint64, goLimit int64) uint64 {
	share := physical / budgetShare
	if goLimit > 0 && goLimit < math.MaxInt64 && (physical == 0 || uint64(goLimit) < physical) {
		share = uint64(goLimit) / budgetShare
	}
	return max(share, budgetLeast)
}
