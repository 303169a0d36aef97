package wiretest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

// TestStream checks the promises of [wire.Stream] on pairs that pair makes; each case
// takes a fresh pair. Pair registers what it must clean up with its t. The byte sizes
// are chosen to exceed every buffer and window between the two ends.
func TestStream(t *testing.T, pair func(t *testing.T) (a, b wire.Stream)) {
	cases := []struct {
		name string
		run  func(t *testing.T, a, b wire.Stream)
	}{
		{"BytesArriveInOrderBothWays", testBothWays},
		{"HalfCloseLeavesTheOtherDirectionOpen", testHalfClose},
		{"ResetReachesThePeerWithItsCode", testReset},
		{"ResetAfterCloseWriteStopsOnlyReading", testResetAfterCloseWrite},
		{"ResetWakesABlockedReader", testResetWakesReader},
		{"ResetWakesABlockedWriter", testResetWakesWriter},
		{"OwnResetWakesOwnReader", testOwnReset},
		{"DeadlineEndsARead", testReadDeadline},
		{"DeadlineEndsAWrite", testWriteDeadline},
		{"WriterWaitsForASlowReader", testBackpressure},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, b := pair(t)
			t.Run("forward", func(t *testing.T) { c.run(t, a, b) })
			drop(a, b)
			// A QUIC stream is not symmetric: one side opened it.
			a, b = pair(t)
			t.Run("backward", func(t *testing.T) { c.run(t, b, a) })
			drop(a, b)
		})
	}
}

// drop gives back what a case left unread: pairs may share a connection, and its window.
func drop(streams ...wire.Stream) {
	for _, s := range streams {
		s.Reset(wire.CodeCancelled)
	}
}

const largeTransfer = 12 << 20 // more than any window that a peer may open

func noise(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b) // never fails
	return b
}

func send(s wire.Stream, b []byte) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := s.Write(b)
		if err == nil {
			err = s.CloseWrite()
		}
		done <- err
	}()
	return done
}

func wantAll(t *testing.T, s wire.Stream, want []byte) {
	t.Helper()
	got, err := io.ReadAll(s)
	if err != nil {
		t.Fatalf("ReadAll: %v after %d bytes", err, len(got))
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes that differ from the %d written", len(got), len(want))
	}
}

func wantCode(t *testing.T, what string, err error, want wire.Code) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Code != want || errors.Is(err, io.EOF) {
		t.Fatalf("%s: error %v, want a *wire.Error of code %v", what, err, want)
	}
}

func write(t *testing.T, s wire.Stream, text string) {
	t.Helper()
	if _, err := s.Write([]byte(text)); err != nil {
		t.Fatalf("Write: %v", err)
	}
}

func wantText(t *testing.T, s wire.Stream, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != want {
		t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// writeUntil writes to s until it fails.
func writeUntil(s wire.Stream) error {
	chunk := make([]byte, 32<<10)
	for {
		if _, err := s.Write(chunk); err != nil {
			return err
		}
	}
}

func testBothWays(t *testing.T, a, b wire.Stream) {
	there, back := noise(1<<20), noise(1<<20+1)
	sentA, sentB := send(a, there), send(b, back)
	received := make(chan []byte, 1)
	go func() {
		got, _ := io.ReadAll(b)
		received <- got
	}()
	wantAll(t, a, back)
	if got := <-received; !bytes.Equal(got, there) {
		t.Fatalf("other end read %d bytes that differ from the %d written", len(got), len(there))
	}
	if err := errors.Join(<-sentA, <-sentB); err != nil {
		t.Fatal(err)
	}
}

func testHalfClose(t *testing.T, a, b wire.Stream) {
	write(t, a, "question")
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantAll(t, b, []byte("question"))
	if _, err := a.Write([]byte("more")); err == nil {
		t.Fatal("Write after CloseWrite succeeded")
	}
	write(t, b, "answer")
	wantText(t, a, "answer")
	write(t, b, " and more")
	if err := b.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	wantAll(t, a, []byte(" and more"))
}

func testReset(t *testing.T, a, b wire.Stream) {
	write(t, a, "x")
	wantText(t, b, "x")
	a.Reset(wire.CodeTimeout)
	_, err := b.Read(make([]byte, 1))
	wantCode(t, "peer's Read", err, wire.CodeTimeout)
	wantCode(t, "peer's Write", writeUntil(b), wire.CodeTimeout)
	_, err = a.Read(make([]byte, 1))
	wantCode(t, "own Read", err, wire.CodeTimeout)
	_, err = a.Write([]byte("y"))
	wantCode(t, "own Write", err, wire.CodeTimeout)
}

func testResetAfterCloseWrite(t *testing.T, a, b wire.Stream) {
	write(t, a, "last words")
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	a.Reset(wire.CodeCancelled)
	wantAll(t, b, []byte("last words"))
	wantCode(t, "peer's Write", writeUntil(b), wire.CodeCancelled)
}

func testResetWakesReader(t *testing.T, a, b wire.Stream) {
	write(t, a, "x")
	wantText(t, b, "x")
	failed := make(chan error, 1)
	go func() {
		_, err := b.Read(make([]byte, 1))
		failed <- err
	}()
	a.Reset(wire.CodeBusy)
	wantCode(t, "blocked Read", <-failed, wire.CodeBusy)
}

func testResetWakesWriter(t *testing.T, a, b wire.Stream) {
	write(t, b, "x")
	wantText(t, a, "x")
	failed := make(chan error, 1)
	go func() { failed <- writeUntil(b) }()
	wantText(t, a, "\x00") // the writer is under way, and nobody reads on
	a.Reset(wire.CodeLimit)
	wantCode(t, "blocked Write", <-failed, wire.CodeLimit)
}

func testOwnReset(t *testing.T, a, b wire.Stream) {
	write(t, a, "x")
	wantText(t, b, "x")
	failed := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		failed <- err
	}()
	a.Reset(wire.CodeShutdown)
	wantCode(t, "own blocked Read", <-failed, wire.CodeShutdown)
}

func testReadDeadline(t *testing.T, a, b wire.Stream) {
	write(t, a, "x")
	wantText(t, b, "x")
	if err := b.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Read past its deadline: %v, want os.ErrDeadlineExceeded", err)
	}
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	write(t, a, "later")
	wantText(t, b, "later")
}

func testWriteDeadline(t *testing.T, a, b wire.Stream) {
	write(t, a, "x")
	wantText(t, b, "x")
	if err := a.SetWriteDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if err := writeUntil(a); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Write past its deadline: %v, want os.ErrDeadlineExceeded", err)
	}
	if err := a.SetWriteDeadline(time.Now().Add(-time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write(make([]byte, largeTransfer)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("Write with a deadline in the past: %v, want os.ErrDeadlineExceeded", err)
	}
}

func testBackpressure(t *testing.T, a, b wire.Stream) {
	write(t, b, "x")
	wantText(t, a, "x")
	want := noise(largeTransfer)
	sent := send(a, want)
	got := make([]byte, 0, len(want))
	for size := 1; ; size = size%(64<<10) + 997 {
		chunk := make([]byte, size)
		n, err := b.Read(chunk)
		got = append(got, chunk[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(got) < 64<<10 {
			select {
			case err := <-sent:
				t.Fatalf("writer of %d bytes was done (%v) when %d were read", len(want), err, len(got))
			default:
			}
		}
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("read %d bytes that differ from the %d written", len(got), len(want))
	}
}
