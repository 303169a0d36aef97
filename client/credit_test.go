package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// Pieces of one text, at any offset, repeated and overlapping, must leave in order, once, and
// never past the limit.
func TestCreditSendsEachByteOnceAndNeverPastItsLimit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	for range 50 {
		var c credit
		var sent []byte
		var limit int
		for range 300 {
			if r.IntN(4) == 0 {
				to := r.IntN(len(text))
				limit = max(limit, min(to, limit+5000))
				c.grant(uint64(limit), false)
				c.grant(uint64(limit/2), false) // an old one that was overtaken
				continue
			}
			at := max(0, min(len(text), len(sent)+r.IntN(300)-250))
			piece := text[at:min(len(text), at+r.IntN(40_000))]
			before := len(sent)
			n, wait, err := c.next(uint64(at), len(piece), func(from uint64, skip, n int) error {
				if int(from) != len(sent) || n > wire.MaxChunk || n < 1 {
					t.Fatalf("sends %d bytes at %d, %d are sent", n, from, len(sent))
				}
				sent = append(sent, piece[skip:skip+n]...)
				return nil
			})
			switch end := at + len(piece); {
			case at > before:
				if wire.CodeOf(err) != wire.CodeBadRequest || len(sent) != before {
					t.Fatalf("hole before %d, %d are sent: %v", at, before, err)
				}
			case end <= before:
				if n != len(piece) || err != nil || len(sent) != before {
					t.Fatalf("known bytes %d to %d: %d, %v", at, end, n, err)
				}
			case err != nil || at+n != len(sent):
				t.Fatalf("next(%d, %d): %d, %v, %d are sent", at, len(piece), n, err, len(sent))
			case before == limit && wait == nil:
				t.Fatal("without credit there is nothing to wait for")
			case before < limit && len(sent) == before:
				t.Fatalf("nothing was sent of %d bytes, %d of credit", end-before, limit-before)
			}
			if len(sent) > limit {
				t.Fatalf("%d bytes are sent, the limit is %d", len(sent), limit)
			}
		}
		if !bytes.Equal(sent, text[:len(sent)]) {
			t.Fatal("what was sent is not the text")
		}
	}
}

func TestCreditWakesWhoWaits(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*credit)
		want error // of the next try
	}{
		{"more credit", func(c *credit) { c.grant(10, false) }, nil},
		{"the command reads no more", func(c *credit) { c.grant(0, true) }, wire.ErrStdinClosed},
		{"the end of the circuit", func(c *credit) { c.shut() }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var cr credit
			nothing := func(uint64, int, int) error { return nil }
			_, wait, err := cr.next(0, 5, nothing)
			if err != nil || wait == nil {
				t.Fatalf("without credit: %v", err)
			}
			c.do(&cr)
			<-wait
			if _, _, err := cr.next(0, 5, nothing); !errors.Is(err, c.want) {
				t.Errorf("next try: %v, want %v", err, c.want)
			}
		})
	}
}

func TestEndOfInputIsSentOnce(t *testing.T) {
	c := credit{limit: 100}
	c.next(0, 7, func(uint64, int, int) error { return nil })
	var ends []uint64
	for range 3 {
		c.end(func(at uint64) error {
			ends = append(ends, at)
			return nil
		})
	}
	if len(ends) != 1 || ends[0] != 7 {
		t.Errorf("ends sent: %v, want one at 7", ends)
	}
	if _, _, err := c.next(7, 1, nil); !errors.Is(err, wire.ErrStdinClosed) {
		t.Errorf("input after the end: %v, want ErrStdinClosed", err)
	}
	closed := credit{closed: true}
	closed.end(func(uint64) error {
		t.Error("an end was sent to a command that reads no more")
		return nil
	})
}
