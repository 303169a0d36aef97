package executor

import (
	"log/slog"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

func TestRelayKeyIsFollowedForwardsOnlyAndNotForEver(t *testing.T) {
	newKey := func() keys.PublicKey {
		t.Helper()
		key, err := keys.Generate(keys.Relay)
		if err != nil {
			t.Fatal(err)
		}
		return key.Public()
	}
	told := 0
	e := &Executor{cfg: Config{Log: slog.New(slog.DiscardHandler), RelayKeyReplaced: func(_, _ keys.PublicKey) { told++ }}}
	first, second, third := newKey(), newKey(), newKey()
	e.pin.key = first
	follow := func(by, next, want keys.PublicKey) {
		t.Helper()
		raw := wire.Bytes32(next.Raw())
		e.follow(by, &raw)
		if got := e.relayKey(); got != want {
			t.Fatalf("the relay must prove %v now, want %v", got, want)
		}
	}
	e.follow(first, nil)
	follow(second, third, first) // who is not the relay names no next key
	follow(first, first, first)
	follow(first, second, second)
	follow(first, third, second) // the key before has no say any more
	follow(second, first, second)
	follow(second, third, third)
	if told != 2 {
		t.Errorf("told of %d replacements, want 2", told)
	}
	for range 2 * maxRelayKeys {
		raw := wire.Bytes32(newKey().Raw())
		e.follow(e.relayKey(), &raw)
	}
	if told != maxRelayKeys {
		t.Errorf("followed %d keys, want %d at most", told, maxRelayKeys)
	}
}
