package main

import (
	"runtime"
	"testing"
	"time"
)

func TestCollectorHasTheSameRoomUntilAPartOfWhatIsInUseIsMore(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		inUse uint64
		want  int
	}{
		{0, 400},
		{1 << 20, 400},
		{2 << 20, 400},
		{4 << 20, 200},
		{8 << 20, 100},
		{16 << 20, 50},
		{32 << 20, 25},
		{64 << 20, 15},
		{1 << 40, 15},
	} {
		if got := collectorPercent(test.inUse); got != test.want {
			t.Errorf("with %d bytes in use GOGC is %d, want %d", test.inUse, got, test.want)
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
		case <-time.After(10 * time.Second):
			t.Fatalf("no look after collection %d", n)
		}
	}
}
