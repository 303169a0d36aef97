package executor

import (
	"math/rand/v2"
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestFlightIsBoundedAndEmptiesWithItsAcknowledgements(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, most := range []int{0, 1, 100, wire.MaxChunk} {
		var f flight
		sizes := []int{0}
		acked, seq := uint64(0), uint64(0)
		for range 300_000 {
			if !f.full() {
				seq++
				n := r.IntN(most + 1)
				sizes = append(sizes, n+messageOverhead)
				f.add(seq, n)
			} else {
				acked += 1 + r.Uint64N(seq-acked)
				f.ack(acked)
				f.ack(acked / 2) // one that comes late changes nothing
			}
			if len(f.groups) > 300 || f.size > wire.OutputWindow+wire.MaxChunk+messageOverhead {
				t.Fatalf("%d groups and %d bytes for chunks of up to %d", len(f.groups), f.size, most)
			}
		}
		held := 0
		for n := acked + 1; n <= seq; n++ {
			held += sizes[n]
		}
		if f.size < held || f.size > held+2*flightGroupSize+wire.MaxChunk {
			t.Errorf("%d bytes are said to be under way, %d are", f.size, held)
		}
		f.ack(seq)
		if f.size != 0 || f.groups != nil {
			t.Errorf("%d bytes are left when everything is acknowledged", f.size)
		}
	}
}
