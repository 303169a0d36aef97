package quicconn

import (
	"errors"
	"net"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

func TestDrainRefusesNewcomersAndLeavesTheRest(t *testing.T) {
	l, dial := listen(t, ListenOptions{})
	a, b := connect(t, l, dial)
	x, y := openPair(t, a, b)
	waiting, err := dial() // its handshake is done, and nobody has accepted it
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	if err := l.Drain(); err != nil {
		t.Errorf("second Drain: %v", err)
	}
	for range 2 {
		c, err := dial()
		wantBusy(t, "dial of a draining listener", c, err)
	}
	if _, err := x.Write([]byte("z")); err != nil {
		t.Errorf("write on a connection from before: %v", err)
	}
	got := make([]byte, 1)
	if _, err := y.Read(got); err != nil || got[0] != 'z' {
		t.Errorf("read on a connection from before: %q, %v", got, err)
	}
	if s, err := b.OpenStream(t.Context()); err != nil {
		t.Errorf("open a stream on a connection from before: %v", err)
	} else {
		s.Reset(wire.CodeCancelled)
	}
	// One that was done may come out of Accept or have been refused; then it is over.
	for {
		c, err := l.Accept(t.Context())
		if err == nil {
			_ = c.Close(wire.CodeShutdown, "")
			continue
		}
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("Accept: %v, want net.ErrClosed", err)
		}
		break
	}
	<-waiting.Context().Done()
	_ = waiting.Close(wire.CodeShutdown, "")
	if a.Context().Err() != nil || b.Context().Err() != nil {
		t.Error("a connection from before has ended")
	}
	// What the others held comes back in its own time.
	for end := time.Now().Add(time.Minute); l.Guard().InFlight() != 1; <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d in flight, want the one that is left", l.Guard().InFlight())
		}
	}
}

func TestDrainAfterCloseIsErrClosed(t *testing.T) {
	l, _ := listen(t, ListenOptions{})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Drain(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Drain: %v, want net.ErrClosed", err)
	}
}

// TestDrainAsksNobodyForAProof: the refusal is what a newcomer must see, not a Retry.
func TestDrainAsksNobodyForAProof(t *testing.T) {
	l, dial := listen(t, ListenOptions{})
	for range 4 {
		l.Guard().Penalise(addrOf(l.Addr()))
	}
	if err := l.Drain(); err != nil {
		t.Fatal(err)
	}
	c, err := dial()
	wantBusy(t, "dial", c, err)
	if n := l.Guard().Counts()[LimitRetryToken]; n != 0 {
		t.Errorf("%d proofs asked for", n)
	}
}
