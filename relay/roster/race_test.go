package roster_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
)

func TestHundredMachinesForTenUsesAreTen(t *testing.T) {
	h, alice := acme(t)
	tok := h.add(alice, "*", 10)
	results := make([]roster.JoinResult, 100)
	var racing sync.WaitGroup
	start := make(chan struct{})
	for i := range results {
		key, name := newKey(t, keys.Executor), fmt.Sprintf("m%d", i)
		racing.Go(func() {
			<-start
			for results[i] = roster.JoinBusy; results[i] == roster.JoinBusy; { // the machine would wait a second
				_, results[i], _ = h.Join(key, name, tok.proof(key, name))
			}
		})
	}
	close(start)
	racing.Wait()
	count := make(map[roster.JoinResult]int)
	for _, r := range results {
		count[r]++
	}
	if count[roster.Joined] != 10 || count[roster.JoinSpent] != 90 {
		t.Errorf("results %v, want 10 in and 90 for whom it is spent", count)
	}
	if members := len(h.Current().Members("acme")) - 1; h.used(tok) != 10 || members != 10 || strings.Count(h.disk(), "\nexec ") != 10 {
		t.Errorf("%d uses, %d members, on disk:\n%s", h.used(tok), members, h.disk())
	}
}

func TestManyMachinesForOneNameLeaveOneThatHasIt(t *testing.T) {
	h, alice := acme(t)
	tok := h.add(alice, "builder", 50)
	var racing sync.WaitGroup
	var mu sync.Mutex
	count := make(map[roster.JoinResult]int)
	for range 20 {
		key := newKey(t, keys.Executor)
		racing.Go(func() {
			_, result, _ := h.Join(key, "builder", tok.proof(key, "builder"))
			mu.Lock()
			defer mu.Unlock()
			count[result]++
		})
	}
	racing.Wait()
	if count[roster.Joined] != 1 || count[roster.JoinName] != 19 || h.used(tok) != 1 {
		t.Errorf("results %v and %d uses, want one machine and one use", count, h.used(tok))
	}
}
