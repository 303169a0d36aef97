package main

import (
	"runtime"
	"testing"
	"time"
)

func TestCollectorHasTheSameRoomUntilAPartOfWhatIsInUseIsMore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		inUse      uint64
		relay, end int
	}{
		{0, 400, 400},
		{1 << 20, 400, 400},
		{2 << 20, 400, 400},
		{4 << 20, 200, 400},
		{8 << 20, 100, 200},
		{16 << 20, 50, 100},
		{32 << 20, 25, 100},
		{64 << 20, 12, 100},
		{1 << 40, 12, 100},
	} {
		if relay, end := relayCollector.percent(test.inUse), endCollector.percent(test.inUse); relay != test.relay || end != test.end {
			t.Errorf("with %d bytes in use GOGC is %d and %d, want %d and %d", test.inUse, relay, end, test.relay, test.end)
		}
	}
}

func TestEachCollectionIsFollowedByALook(t *testing.T) {
	t.Parallel()
	looks := make(chan uint64, 1)
	afterEachCollection(func() {
		select {
		case looks <- heapInUse():
		default: // those after the test
		}
	})
	for n := range 3 {
		if n > 0 {
			runtime.GC()
		}
		select {
		case inUse := <-looks:
			if n > 0 && inUse == 0 {
				t.Error("nothing is in use after a collection")
			}
		case <-time.After(patience):
			t.Fatalf("no look after collection %d", n)
		}
	}
}
