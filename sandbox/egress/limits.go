package egress

import "time"

// What one proxy takes on, so that neither a command nor a host can hold the daemon up.
const (
	// maxConns bounds the connections at once, and maxTurnedAway those beyond them that
	// are told so; all others are closed unheard.
	maxConns, maxTurnedAway = 256, 32
	// maxHeader bounds the head of a request in bytes, and maxResponseHeader that of an
	// answer.
	maxHeader, maxResponseHeader = 64 << 10, 256 << 10
	// headerTimeout is for the head of a request, from the first byte or, on a new
	// connection, from its beginning; keepAliveTimeout is for the time between two.
	headerTimeout, keepAliveTimeout = 15 * time.Second, 2 * time.Minute
	// lookupTimeout and dialTimeout are for the name and for all its addresses together.
	lookupTimeout, dialTimeout = 10 * time.Second, 30 * time.Second
	// attemptDelay is the head start of an address before the next is tried too, as RFC
	// 8305 section 5 recommends, and maxAttempts how many are tried.
	attemptDelay, maxAttempts = 250 * time.Millisecond, 8
	// idleTimeout ends what has not moved a byte for so long. It is meant for peers that
	// have vanished; a quiet connection of a living program may well last some minutes.
	idleTimeout = 30 * time.Minute
	// lingerTimeout and lingerBytes bound what is read and thrown away after a refusal, so
	// that the client gets to read it.
	lingerTimeout, lingerBytes = time.Second, 256 << 10
)
