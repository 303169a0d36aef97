package roster_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

// lookup wants a member with the key.
func (h *house) lookup(key keys.PublicKey) keys.Member {
	h.t.Helper()
	m, in := h.Current().Lookup(key)
	if !in {
		h.t.Fatalf("%s is no member", key.Short())
	}
	return m
}

func (h *house) wantGone(what string, key keys.PublicKey) {
	h.t.Helper()
	if _, in := h.Current().Lookup(key); in {
		h.t.Errorf("%s is still a member", what)
	}
}

func TestNextKeyHasTheNameBesideTheOldOneUntilThatIsRetired(t *testing.T) {
	h, alice := acme(t)
	old, next := newKey(t, keys.Executor), newKey(t, keys.Executor)
	m, _ := h.come(h.add(alice, "*", 1), old, "builder", roster.Joined)
	for range 2 { // the same again changes nothing
		if err := h.Follow(m, next); err != nil {
			t.Fatal(err)
		}
	}
	if n := h.lookup(next); n.Name != "builder" || n.Tenant != "acme" || n.Follows != old || n.Since.IsZero() {
		t.Errorf("next is %+v", n)
	}
	h.lookup(old)
	wantRefused(t, "retired by the old key", h.Retire(m, old), wire.CodeNotFound)
	wantRefused(t, "retired by another", h.Retire(alice, old), wire.CodeNotFound)
	wantRefused(t, "another key retired", h.Retire(h.lookup(next), alice.Key), wire.CodeNotFound)
	if err := h.Retire(h.lookup(next), old); err != nil {
		t.Fatal(err)
	}
	h.wantGone("the old key", old)
	h.restart()
	if n := h.lookup(next); !n.Follows.IsZero() || n.Name != "builder" {
		t.Errorf("afterwards it is %+v", n)
	}
	if err := h.Follow(h.lookup(next), newKey(t, keys.Executor)); err != nil {
		t.Errorf("the next change of its key: %v", err)
	}
}

func TestSecondNextKeyReplacesTheFirst(t *testing.T) {
	h, alice := acme(t)
	m, _ := h.come(h.add(alice, "*", 1), newKey(t, keys.Executor), "builder", roster.Joined)
	first, second := newKey(t, keys.Executor), newKey(t, keys.Executor)
	for _, next := range []keys.PublicKey{first, second} {
		if err := h.Follow(m, next); err != nil {
			t.Fatal(err)
		}
	}
	h.wantGone("the first one", first)
	h.lookup(second)
	h.lookup(m.Key)
}

func TestFollowingIsRefusedInAChainAndForSomebodyElsesKey(t *testing.T) {
	other := keys.Member{Key: newKey(t, keys.Executor), Name: "other", Tenant: "acme"}
	h, alice := acme(t, line(other))
	m, _ := h.come(h.add(alice, "*", 1), newKey(t, keys.Executor), "builder", roster.Joined)
	next := newKey(t, keys.Executor)
	if err := h.Follow(m, next); err != nil {
		t.Fatal(err)
	}
	before := h.disk()
	wantRefused(t, "a chain", h.Follow(h.lookup(next), newKey(t, keys.Executor)), wire.CodeConflict)
	wantRefused(t, "somebody else's", h.Follow(m, other.Key), wire.CodeConflict)
	wantRefused(t, "its own", h.Follow(m, m.Key), wire.CodeConflict)
	wantRefused(t, "back again", h.Follow(h.lookup(next), m.Key), wire.CodeConflict)
	if h.disk() != before {
		t.Errorf("on disk:\n%s\nwant\n%s", h.disk(), before)
	}
}

func TestListedKeyCanBeFollowedAndIsRemovedByHandOnly(t *testing.T) {
	listed := keys.Member{Key: newKey(t, keys.Executor), Name: "builder", Tenant: "acme"}
	h, alice := acme(t, line(listed))
	next := newKey(t, keys.Executor)
	if err := h.Follow(listed, next); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := h.Retire(h.lookup(next), listed.Key); err != nil {
			t.Fatal(err)
		}
	}
	h.lookup(listed.Key)
	if log := h.log.String(); !strings.Contains(log, next.String()) || !strings.Contains(log, "level=WARN") {
		t.Errorf("the operator is not told what to do: %q", log)
	}
	h.relist("tenant acme", line(alice), line(keys.Member{Key: next, Name: "builder"}))
	h.wantGone("the old key", listed.Key)
	if err := h.Follow(h.lookup(next), newKey(t, keys.Executor)); err != nil {
		t.Errorf("the next change of its key: %v", err)
	}
}

func TestNextKeyThatTheOperatorHasListedIsNotSilentlyShutOut(t *testing.T) {
	old := keys.Member{Key: newKey(t, keys.Executor), Name: "builder", Tenant: "acme"}
	first := newKey(t, keys.Executor)
	h, _ := acme(t, line(old), line(keys.Member{Key: first, Name: "builder"})+" follows="+old.Key.String())
	if err := h.Follow(old, first); err != nil {
		t.Errorf("the listed one: %v", err)
	}
	second := newKey(t, keys.Executor)
	wantRefused(t, "a third key of the name", h.Follow(old, second), wire.CodeConflict)
	h.wantGone("the third key", second)
	if strings.Contains(h.disk(), second.String()) {
		t.Error("what was refused is on disk")
	}
}

func TestKeyThatWasRemovedMeanwhileLeavesNothingBehind(t *testing.T) {
	gone := keys.Member{Key: newKey(t, keys.Executor), Name: "builder", Tenant: "acme"}
	h, alice := acme(t, line(gone))
	h.relist("tenant acme") // its request is on its way
	next := newKey(t, keys.Executor)
	wantRefused(t, "follow", h.Follow(gone, next), wire.CodeUnauthorized)
	wantRefused(t, "token", h.AddToken(alice, newToken().request("*", 1, 1e9)), wire.CodeUnauthorized)
	wantRefused(t, "token back", h.RemoveToken(alice, newToken().id), wire.CodeUnauthorized)
	h.wantGone("the next key", next)
	if h.disk() != "" {
		t.Errorf("on disk: %q", h.disk())
	}
}

func TestMemberThatWasMovedMeanwhileChangesNothingWhereItWas(t *testing.T) {
	h, alice, bob := two(t)
	tok := h.add(alice, "*", 1)
	moved := keys.Member{Key: newKey(t, keys.Executor), Name: "builder", Tenant: "acme"}
	h.relist("tenant acme", "tenant other", line(bob), line(alice), line(moved))
	before, next := h.disk(), newKey(t, keys.Executor)
	wantRefused(t, "token", h.AddToken(alice, newToken().request("*", 1, time.Hour)), wire.CodeUnauthorized)
	wantRefused(t, "token back", h.RemoveToken(alice, tok.id), wire.CodeUnauthorized)
	wantRefused(t, "follow", h.Follow(moved, next), wire.CodeUnauthorized)
	h.wantGone("the next key", next)
	if h.disk() != before {
		t.Errorf("on disk:\n%s\nwant\n%s", h.disk(), before)
	}
}

func TestNextKeyGoesWhereTheOperatorHasMovedTheExecutor(t *testing.T) {
	h, alice, bob := two(t)
	m, _ := h.come(h.add(alice, "*", 1), newKey(t, keys.Executor), "builder", roster.Joined)
	next, other := newKey(t, keys.Executor), newKey(t, keys.Executor)
	if err := h.Follow(m, next); err != nil {
		t.Fatal(err)
	}
	h.relist("tenant acme", line(alice), "tenant other", line(bob), line(keys.Member{Key: m.Key, Name: "moved"}))
	for _, key := range []keys.PublicKey{next, other} {
		if err := h.Follow(h.lookup(m.Key), key); err != nil {
			t.Fatal(err)
		}
		if n := h.lookup(key); n.Tenant != "other" || n.Name != "moved" || n.Follows != m.Key {
			t.Errorf("next is %+v", n)
		}
	}
	h.wantGone("the one before, in whatever tenant", next)
}
