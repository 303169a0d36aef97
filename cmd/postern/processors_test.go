package main

import "testing"

func TestAnEndLeavesHalfOfTheProcessorsToWhatItServes(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 64: 32} {
		if got := shareOf(n); got != want {
			t.Errorf("of %d processors it takes %d, want %d", n, got, want)
		}
	}
}
