package client

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// Pieces of one text, at any offset, repeated and overlapping, over circuits that end anywhere,
// must reach the executor in order, once, and never past the limit.
func TestInputReachesTheExecutorOnceAndNeverPastItsLimit(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	text := make([]byte, 100_000)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	for range 50 {
		var in input
		var got []byte // by the executor
		var at inputCursor
		given, accepted, limit := 0, 0, 0
		for range 400 {
			switch r.IntN(8) {
			case 0, 1: // more credit, and what was written
				limit = max(limit, min(len(text), len(got)+r.IntN(9000)))
				if err := in.acked(&wire.InputAck{Offset: uint64(r.IntN(len(got) + 1)), Limit: uint64(limit)}); err != nil {
					t.Fatal(err)
				}
			case 2: // another circuit, while some of what was sent has not arrived
				var err error
				if at, err = in.begin(&wire.Started{InputOffset: uint64(len(got)), InputLimit: uint64(limit)}, false); err != nil {
					t.Fatal(err)
				}
				given = len(got)
			case 3, 4, 5: // a message is sent; it arrives, or the circuit is about to end
				m, _ := in.next(&at).(*wire.Input)
				if m == nil {
					if given != accepted {
						t.Fatalf("nothing is sent after %d, %d are accepted", given, accepted)
					}
					continue
				}
				if int(m.Offset) != given || len(m.Data) > wire.MaxChunk || given+len(m.Data) > limit {
					t.Fatalf("sends %d bytes at %d, want at %d, at most to %d", len(m.Data), m.Offset, given, limit)
				}
				if given == len(got) && r.IntN(4) > 0 {
					got = append(got, m.Data...)
				}
				given += len(m.Data)
			default:
				from := max(0, min(len(text), accepted+r.IntN(300)-250))
				piece := text[from:min(len(text), from+r.IntN(40_000))]
				n, wait, err := in.accept(uint64(from), piece)
				switch {
				case from > accepted:
					if wire.CodeOf(err) != wire.CodeBadRequest {
						t.Fatalf("hole before %d, %d are accepted: %v", from, accepted, err)
					}
					continue
				case err != nil || n > len(piece):
					t.Fatalf("accept: %d, %v", n, err)
				case n == 0 && len(piece) > 0 && (wait == nil || from < accepted || accepted < limit):
					t.Fatalf("nothing of %d bytes at %d was accepted with credit to %d", len(piece), from, limit)
				}
				if accepted = max(accepted, from+n); accepted > limit {
					t.Fatalf("%d bytes are accepted, the limit is %d", accepted, limit)
				}
			}
		}
		if !bytes.Equal(got, text[:len(got)]) {
			t.Fatal("what arrived is not the text")
		}
	}
}

func TestInputWakesWhoWaitsForCredit(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		name string
		do   func(*input)
		want error // of the next try
	}{
		{"more credit", func(in *input) { in.acked(&wire.InputAck{Limit: 10}) }, nil},
		{"the command reads no more", func(in *input) { in.acked(&wire.InputAck{Closed: true}) }, wire.ErrStdinClosed},
		{"the command has ended", func(in *input) { in.shut() }, wire.ErrStdinClosed},
		{"the end of the input", func(in *input) { in.end() }, wire.ErrStdinClosed},
		{"the end of the handle", func(in *input) { in.fail(lost); in.fail(wire.ErrClosed) }, lost},
	} {
		t.Run(c.name, func(t *testing.T) {
			var in input
			_, wait, err := in.accept(0, make([]byte, 5))
			if err != nil || wait == nil {
				t.Fatalf("without credit: %v", err)
			}
			c.do(&in)
			<-wait
			if _, _, err := in.accept(0, make([]byte, 5)); !errors.Is(err, c.want) {
				t.Errorf("next try: %v, want %v", err, c.want)
			}
		})
	}
}

func TestEndOfInputIsSentOnceOnEachCircuit(t *testing.T) {
	in := input{limit: 100}
	in.accept(0, make([]byte, 7))
	in.end()
	for circuit := range 2 {
		var at inputCursor
		var ends []uint64
		for m := in.next(&at); m != nil; m = in.next(&at) {
			if end, ok := m.(*wire.InputEnd); ok {
				ends = append(ends, end.Offset)
			}
		}
		if len(ends) != 1 || ends[0] != 7 {
			t.Errorf("ends sent on circuit %d: %v, want one at 7", circuit, ends)
		}
	}
	in.shut()
	if m := in.next(new(inputCursor)); m != nil {
		t.Errorf("a %T was sent to a command that reads no more", m)
	}
}

func TestInputHeldIsBoundedWhateverCreditTheExecutorGives(t *testing.T) {
	in := input{limit: 1 << 40}
	n, _, err := in.accept(0, make([]byte, 3*maxHeld))
	if err != nil || n != maxHeld {
		t.Errorf("%d bytes were accepted, %v, want %d", n, err, maxHeld)
	}
	if _, wait, _ := in.accept(uint64(n), []byte{1}); wait == nil {
		t.Error("more was accepted than may be held")
	}
}

func TestInputThatTheExecutorCannotHaveIsAProtocolError(t *testing.T) {
	ready := func() *input {
		in := &input{limit: 100}
		in.accept(0, make([]byte, 20))
		var at inputCursor
		in.next(&at)
		in.acked(&wire.InputAck{Offset: 10, Limit: 100})
		return in
	}
	in := ready()
	wantCode(t, "an InputAck beyond what was sent", in.acked(&wire.InputAck{Offset: 21, Limit: 100}), wire.CodeProtocol)
	_, err := in.begin(&wire.Started{InputOffset: 21, InputLimit: 100}, false)
	wantCode(t, "a Started beyond what was sent", err, wire.CodeProtocol)
	_, err = in.begin(&wire.Started{InputOffset: 9, InputLimit: 100}, false)
	wantCode(t, "a Started below what was confirmed", err, wire.CodeProtocol)
	if _, err = in.begin(&wire.Started{InputClosed: true}, false); err != nil {
		t.Errorf("a Started of a command that reads no more: %v", err)
	}
}
