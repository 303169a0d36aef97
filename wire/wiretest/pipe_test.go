package wiretest

import (
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/wire"
)

func TestMain(m *testing.M) { RunWithoutLeaks(m) }

func TestPipeKeepsTheStreamPromises(t *testing.T) {
	TestStream(t, func(*testing.T) (a, b wire.Stream) { return Pipe() })
}

func TestTransportStreamKeepsTheStreamPromises(t *testing.T) {
	TestStream(t, func(t *testing.T) (a, b wire.Stream) {
		x, y := Transports(nil)
		t.Cleanup(func() { x.Close(wire.CodeShutdown, "") })
		a, err := x.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		b, err = y.AcceptStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return a, b
	})
}

func TestPipeHolds64KiBInEachDirection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := Pipe()
		if err := a.SetWriteDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		n, err := a.Write(make([]byte, 100<<10))
		if n != 64<<10 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Write = %d, %v, want 65536 and os.ErrDeadlineExceeded", n, err)
		}
	})
}

func TestPipeDeadlineFollowsFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Pipe()
		start := time.Now()
		if err := b.SetReadDeadline(start.Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		_, err := b.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(start) != time.Hour {
			t.Fatalf("Read: %v after %v, want os.ErrDeadlineExceeded after 1h", err, time.Since(start))
		}
		if err := b.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Hour, func() { a.Reset(wire.CodeBusy) })
		_, err = b.Read(make([]byte, 1))
		wantCode(t, "Read", err, wire.CodeBusy)
	})
}

func TestPipeDeadlineMovedWhileReadingCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, b := Pipe()
		failed := make(chan error)
		go func() {
			_, err := b.Read(make([]byte, 1))
			failed <- err
		}()
		synctest.Wait()
		if err := b.SetReadDeadline(time.Now().Add(-1)); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("Read: %v, want os.ErrDeadlineExceeded", err)
		}
	})
}
