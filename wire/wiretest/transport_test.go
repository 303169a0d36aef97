package wiretest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/wire"
)

func TestTransportCloseReachesEverythingWithCodeAndText(t *testing.T) {
	a, b := Transports([]byte("binding"))
	if got := b.Binding(); !cmp.Equal(got, []byte("binding")) {
		t.Fatalf("Binding = %q", got)
	}
	mine, err := a.OpenStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := b.AcceptStream(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(t, mine, "unread")
	accepting := make(chan error)
	go func() {
		_, err := b.AcceptStream(context.Background())
		accepting <- err
	}()
	want := &wire.Error{Code: wire.CodeSuperseded, Text: "a newer one is here"}
	if err := a.Close(want.Code, want.Text); err != nil {
		t.Fatal(err)
	}
	_, readErr := theirs.Read(make([]byte, 1))
	_, writeErr := mine.Write([]byte("x"))
	_, openErr := b.OpenStream(t.Context())
	for what, err := range map[string]error{
		"peer's Accept": <-accepting, "peer's Read": readErr, "own Write": writeErr, "peer's Open": openErr,
		"peer's Context": context.Cause(b.Context()), "own Context": context.Cause(a.Context()),
	} {
		if got, _ := errors.AsType[*wire.Error](err); !cmp.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
	}
	if !errors.Is(readErr, wire.ErrLost) || !errors.Is(writeErr, wire.ErrLost) {
		t.Errorf("streams of a closed connection: %v and %v, want them to wrap wire.ErrLost too", readErr, writeErr)
	}
	if err := b.Close(wire.CodeInternal, "too late"); err != nil {
		t.Fatal(err)
	}
	// The first close stays the reason.
	if got, _ := errors.AsType[*wire.Error](context.Cause(a.Context())); !cmp.Equal(got, want) {
		t.Errorf("after a second Close the cause is %v, want %v", got, want)
	}
}

func TestTransportBoundsStreamsThatNobodyAccepts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := Transports(nil)
		defer a.Close(wire.CodeShutdown, "")
		for range backlog {
			if _, err := a.OpenStream(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		opener := a.(interface {
			TryOpenStream() (wire.Stream, error)
		})
		_, err := opener.TryOpenStream()
		wantCode(t, "TryOpenStream at the limit", err, wire.CodeBusy)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := a.OpenStream(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("OpenStream at the limit: %v, want it to wait for its context", err)
		}
		if _, err := b.AcceptStream(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := opener.TryOpenStream(); err != nil {
			t.Fatalf("TryOpenStream after one was accepted: %v", err)
		}
	})
}

func TestTransportForgetsFinishedStreams(t *testing.T) {
	a, b := Transports(nil)
	defer a.Close(wire.CodeShutdown, "")
	for range 5000 {
		mine, err := a.OpenStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.AcceptStream(t.Context()); err != nil {
			t.Fatal(err)
		}
		mine.Reset(wire.CodeCancelled)
	}
	if kept := len(a.(*transport).link.streams); kept > 64 {
		t.Fatalf("connection keeps %d streams, all of them finished", kept)
	}
}
