package main

import (
	"sync"
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

// A keystroke's echo beside commands that print as fast as they can: what is interactive waits for no bulk of another exec, and a signal
// for none of its own.
func TestBulkOfOneExecDelaysNeitherTheOthersNorASignal(t *testing.T) {
	onNetwork(t, func(t *testing.T, p *parties) {
		typed, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"cat"}, Stdin: true})
		if err != nil {
			t.Fatal(err)
		}
		defer typed.Close()
		var floods []wire.ExecProcess
		var reading sync.WaitGroup
		defer reading.Wait()
		for range 3 {
			flood, err := p.remote.Start(t.Context(), wire.ExecParams{Argv: []string{"flood", "1000000000"}})
			if err != nil {
				t.Fatal(err)
			}
			defer flood.Close()
			floods = append(floods, flood)
			reading.Go(func() {
				for _, err := range flood.Events(t.Context(), 0) {
					if err != nil {
						return
					}
				}
			})
		}
		after := uint64(0)
		for n := range uint64(8) {
			begun := time.Now()
			if err := typed.Write(t.Context(), n, []byte{'x'}); err != nil {
				t.Fatal(err)
			}
			r, err := typed.Read(t.Context(), wire.ReadRequest{After: after, Wait: time.Minute})
			if err != nil || len(r.Chunks) == 0 {
				t.Fatalf("no echo: %+v, %v", r, err)
			}
			after = r.Next
			if took := time.Since(begun); took > 3*wholeTrip {
				t.Errorf("the echo of keystroke %d took %.1f round trips, want at most 3", n, float64(took)/float64(wholeTrip))
			}
			time.Sleep(oneWay)
		}
		for _, flood := range floods {
			begun := time.Now()
			if err := flood.Signal(t.Context(), "TERM"); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(begun); took > 3*wholeTrip {
				t.Errorf("a signal past its own bulk took %.1f round trips, want at most 3", float64(took)/float64(wholeTrip))
			}
			_ = flood.Terminate(t.Context(), time.Second)
		}
	})
}
