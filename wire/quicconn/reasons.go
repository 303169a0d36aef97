package quicconn

import "sync/atomic"

// LimitReason says which limit of a [Guard] was reached: the closed set for the label of
// a counter.
type LimitReason string

// The limits of a Guard.
const (
	LimitRetryToken      LimitReason = "retry_token"      // a newcomer had to prove its address first
	LimitHandshakeSource LimitReason = "handshake_source" // refused for what came from its address before
	LimitHandshakeGlobal LimitReason = "handshake_global" // refused because too many handshakes were in flight
	LimitMemory          LimitReason = "memory"           // a window did not grow because the budget is spent
	LimitSourcesFull     LimitReason = "sources_full"     // an address was not kept account of, for want of room
)

// limitReasons are all of them, in the order of tally.
var limitReasons = [...]LimitReason{
	LimitRetryToken, LimitHandshakeSource, LimitHandshakeGlobal, LimitMemory, LimitSourcesFull,
}

// tally counts by reason. It is safe for concurrent use.
type tally [len(limitReasons)]atomic.Uint64

func (t *tally) add(reason LimitReason) {
	for i, r := range limitReasons {
		if r == reason {
			t[i].Add(1)
		}
	}
}

func (t *tally) counts() map[LimitReason]uint64 {
	m := make(map[LimitReason]uint64, len(t))
	for i, r := range limitReasons {
		m[r] = t[i].Load()
	}
	return m
}
