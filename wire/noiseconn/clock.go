package noiseconn

import "time"

// Clock is a monotonic clock with any zero. Nil means the machine's boot clock.
type Clock func() time.Duration

func (c Clock) now() time.Duration {
	if c == nil {
		return bootClock()
	}
	return c()
}

var processStart = time.Now()

func monotonicClock() time.Duration { return time.Since(processStart) }
