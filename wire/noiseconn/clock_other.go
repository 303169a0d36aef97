//go:build !linux

package noiseconn

import "time"

// bootClock is the monotonic clock where no other is known; it may stand still while the
// machine sleeps, which makes a session look younger, and its peer's Pings refuse it.
func bootClock() time.Duration { return monotonicClock() }
