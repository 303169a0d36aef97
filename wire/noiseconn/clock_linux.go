package noiseconn

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock goes on while the machine sleeps, so that a suspended peer does not take an
// hour-old message for a fresh one (CLOCK_BOOTTIME, clock_gettime(2)).
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return monotonicClock()
	}
	return time.Duration(ts.Nano())
}
