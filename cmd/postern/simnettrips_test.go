package main

import (
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// firstOutput is how long it takes from Start to the first output, in the time of the network.
func (p *parties) firstOutput(t *testing.T) time.Duration {
	t.Helper()
	begun := time.Now()
	process, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"echo", "hello"}})
	if err != nil {
		t.Fatal(err)
	}
	defer process.Close()
	for e, err := range process.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk != nil {
			return time.Since(begun)
		}
	}
	t.Fatal("the command said nothing")
	return 0
}

// within allows for what stacks of protocols add beside the trips, far less than half a trip.
func within(t *testing.T, what string, took, want time.Duration) {
	t.Helper()
	if took < want || took > want+oneWay/2 {
		t.Errorf("%s took %v, want %v, which is %.1f round trips of the client to the relay", what, took, want, float64(want)/float64(hopTrip))
	}
}

func TestStartOnAnOpenSessionTakesOneRoundTrip(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		p.firstOutput(t)
		for range 3 {
			within(t, "Start with a session", p.firstOutput(t), wholeTrip)
		}
	})
}

// A client that has nothing yet: one round trip for QUIC, one for the relay's proof, and behind the client's own one to the executor
// for its proof, with the request for the circuit and the first message of the handshake at once; then Start.
func TestFirstStartTakesTwoRoundTripsToTheRelayAndTwoToTheExecutor(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		within(t, "the first Start", p.firstOutput(t), 2*hopTrip+2*wholeTrip)
	})
}
