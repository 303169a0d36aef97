package executor

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"github.com/postern-relay/postern/wire"
)

// Offers of pieces of one text, at any offset, repeated and overlapping, must come out as
// that text once.
func TestInputQueueTakesEachByteOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	text := make([]byte, 800_000)
	for i := range text {
		text[i] = byte(r.Uint32())
	}
	for round := range 100 {
		scale := []int{1, 200}[round%2] // pieces that are gathered, and some that are not
		window := 1 + r.IntN(300*scale)
		q := newInputQueue(window)
		var accepted, written int
		var came []byte
		for range 200 {
			if r.IntN(2) == 0 && len(q.chunks) > 0 { // the command reads a little
				n := r.IntN(len(q.chunks[0]) + 1)
				came = append(came, q.chunks[0][:n]...)
				q.wrote(n, nil)
				written += n
			} else {
				at := max(0, min(len(text), accepted+r.IntN(40*scale)-30*scale))
				piece := text[at:min(len(text), at+r.IntN(60*scale))]
				n, err := q.offer(uint64(at), bytes.Clone(piece))
				end := at + len(piece)
				switch {
				case end <= accepted:
					if n != len(piece) || err != nil {
						t.Fatalf("known bytes %d to %d: %d, %v", at, end, n, err)
					}
				case at > accepted:
					if wire.CodeOf(err) != wire.CodeBadRequest {
						t.Fatalf("hole before %d, %d accepted: %v", at, accepted, err)
					}
				default:
					accepted = min(end, written+window)
					if err != nil || at+n != accepted {
						t.Fatalf("offer(%d, %d bytes): %d, %v, want up to %d", at, len(piece), n, err, accepted)
					}
				}
			}
			if a := q.ack(); a != (inputAck{uint64(written), uint64(written + window), false}) {
				t.Fatalf("%+v, want %d and %d", a, written, written+window)
			}
		}
		if !bytes.Equal(came, text[:written]) {
			t.Fatalf("%d bytes came out that differ from the text", len(came))
		}
	}
}

// Each byte that somebody types comes in a record of its own, of 256 and more.
func TestInputQueueKeepsLittleMoreThanTheBytes(t *testing.T) {
	q := newInputQueue(1 << 20)
	for at := range uint64(200_000) {
		record := make([]byte, 300)
		if n, err := q.offer(at, record[20:21]); n != 1 || err != nil {
			t.Fatalf("byte %d: %d, %v", at, n, err)
		}
	}
	kept := 0
	for _, c := range q.chunks {
		kept += cap(c)
	}
	if kept > 2*200_000 {
		t.Errorf("%d bytes are kept for 200,000", kept)
	}
}

// While the pump writes a chunk, it is filled up.
func TestInputQueueIsPumpedInOrderWhileItTakesMore(t *testing.T) {
	q := newInputQueue(1 << 20)
	r, w := io.Pipe()
	go q.pump(w, false)
	go func() {
		for at := range uint64(50_000) {
			if n, err := q.offer(at, []byte{byte(at)}); n != 1 || err != nil {
				t.Errorf("byte %d: %d, %v", at, n, err)
				break
			}
		}
		if err := q.end(); err != nil {
			t.Error(err)
		}
	}()
	got, err := io.ReadAll(r)
	if err != nil || len(got) != 50_000 {
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	for at, b := range got {
		if b != byte(at) {
			t.Fatalf("byte %d is %d", at, b)
		}
	}
}

func TestInputQueueRefusesAnOffsetThatOverflows(t *testing.T) {
	q := newInputQueue(10)
	if _, err := q.offer(1<<64-1, []byte("ab")); err == nil {
		t.Fatal("bytes beyond the last offset were taken")
	}
}

func TestInputQueueThatIsShutTakesNothingAndKeepsNothing(t *testing.T) {
	q := newInputQueue(100)
	q.offer(0, []byte("abc"))
	q.shut()
	if n, err := q.offer(0, []byte("ab")); n != 2 || err != nil {
		t.Errorf("known bytes: %d, %v, want a repeat to stay harmless", n, err)
	}
	if _, err := q.offer(3, []byte("d")); !errors.Is(err, wire.ErrStdinClosed) {
		t.Errorf("new bytes: %v, want ErrStdinClosed", err)
	}
	if _, err := q.offer(9, []byte("d")); !errors.Is(err, wire.ErrStdinClosed) {
		t.Errorf("bytes after what was dropped: %v, want ErrStdinClosed", err)
	}
	if !q.ack().closed || q.chunks != nil || q.end() != nil {
		t.Error("a queue that was shut is open, or holds bytes")
	}
}

// sink records writes; each waits for its turn.
type sink struct {
	turn   chan error
	got    bytes.Buffer
	closed bool
}

func (s *sink) Write(p []byte) (int, error) {
	if s.turn != nil {
		if err := <-s.turn; err != nil {
			return 0, err
		}
	}
	return s.got.Write(p)
}

func (s *sink) Close() error {
	s.closed = true
	return nil
}

func TestPumpWritesAllAndThenTheEnd(t *testing.T) {
	for _, c := range []struct {
		name     string
		terminal bool
		input    string
		want     string
		closed   bool
	}{
		{"a pipe is closed", false, "text", "text", true},
		{"an empty input too", false, "", "", true},
		{"a terminal at the beginning of a line gets one EOF", true, "text\n", "text\n\x04", false},
		{"a terminal within a line gets two", true, "text", "text\x04\x04", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			q, w := newInputQueue(100), &sink{}
			if c.input != "" {
				q.offer(0, []byte(c.input))
			}
			q.end()
			q.pump(w, c.terminal)
			if w.got.String() != c.want || w.closed != c.closed {
				t.Errorf("the command got %q, closed %v, want %q and %v", w.got.String(), w.closed, c.want, c.closed)
			}
		})
	}
}

func TestPumpEndsWhenTheCommandReadsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, w := newInputQueue(100), &sink{turn: make(chan error)}
		ended := make(chan struct{})
		go func() {
			q.pump(w, false)
			close(ended)
		}()
		q.offer(0, []byte("abc"))
		changed := q.changed()
		w.turn <- io.ErrClosedPipe
		<-ended
		if !q.ack().closed || !isClosed(changed) || !w.closed {
			t.Error("the end of the command's stdin was not told")
		}
	})
}

func TestPumpSurvivesAShutDuringAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, w := newInputQueue(100), &sink{turn: make(chan error)}
		ended := make(chan struct{})
		go func() {
			q.pump(w, false)
			close(ended)
		}()
		q.offer(0, []byte("abc"))
		synctest.Wait() // the write waits for its turn
		q.shut()
		w.turn <- nil
		<-ended
		if written := q.ack().offset; written != 3 {
			t.Errorf("%d bytes count as written, want 3", written)
		}
	})
}
