//go:build !linux && !darwin

package quicconn

// physicalMemory is zero: not known here, so the default budget is the least there is.
func physicalMemory() uint64 { return 0 }
