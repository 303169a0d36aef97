package roster_test

import (
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

func TestTokensHaveBounds(t *testing.T) {
	h, alice := acme(t)
	for name, m := range map[string]*wire.AddToken{
		"too many uses":      newToken().request("*", roster.MaxUses+1, time.Hour),
		"too long a life":    newToken().request("*", 1, roster.MaxTTL+time.Millisecond),
		"an endless life":    {ID: wire.ID{1}, Hash: [32]byte{1}, Pattern: "*", Uses: 1, TTLMillis: 1<<64 - 1},
		"two stars":          newToken().request("a*b*", 1, time.Hour),
		"no pattern":         newToken().request("", 1, time.Hour),
		"a line in the name": newToken().request("a\njoin", 1, time.Hour),
	} {
		wantRefused(t, name, h.AddToken(alice, m), wire.CodeBadRequest)
	}
	if h.disk() != "" {
		t.Errorf("on disk: %q", h.disk())
	}
	for _, m := range []*wire.AddToken{
		newToken().request("*", roster.MaxUses, roster.MaxTTL), newToken().request("*", 1, time.Millisecond),
	} {
		before := time.Now()
		if err := h.AddToken(alice, m); err != nil {
			t.Error(err)
		}
		if join, known := h.Current().Join(keys.TokenID(m.ID)); !known || join.Uses != int(m.Uses) || join.By != alice.Key || !join.Expires.After(before) {
			t.Errorf("in force: %+v", join)
		}
	}
}

func TestSameTokenAgainChangesNothing(t *testing.T) {
	h, alice, bob := two(t)
	tok := h.add(alice, "*", 2)
	h.come(tok, newKey(t, keys.Executor), "builder", roster.Joined)
	before := h.disk()
	if err := h.AddToken(alice, tok.request("b*", 9, 2*time.Hour)); err != nil {
		t.Errorf("again: %v", err)
	}
	changed := tok
	changed.secret[0] ^= 1
	wantRefused(t, "another secret", h.AddToken(alice, changed.request("*", 1, time.Hour)), wire.CodeConflict)
	wantRefused(t, "another tenant", h.AddToken(bob, tok.request("*", 1, time.Hour)), wire.CodeConflict)
	if h.disk() != before || h.used(tok) != 1 {
		t.Errorf("on disk:\n%s\nwant\n%s", h.disk(), before)
	}
}

func TestRemovedTokenAdmitsNobodyAndItsMachinesStay(t *testing.T) {
	h, alice, bob := two(t)
	tok, key := h.add(alice, "*", 2), newKey(t, keys.Executor)
	h.come(tok, key, "builder", roster.Joined)
	wantRefused(t, "by another tenant", h.RemoveToken(bob, tok.id), wire.CodeNotFound)
	foreign, unknown := h.RemoveToken(bob, tok.id), h.RemoveToken(alice, newToken().id)
	if foreign.Error() != unknown.Error() {
		t.Errorf("another tenant's: %v, none: %v, want one answer", foreign, unknown)
	}
	if err := h.RemoveToken(alice, tok.id); err != nil {
		t.Fatal(err)
	}
	h.come(tok, newKey(t, keys.Executor), "second", roster.JoinUnknown)
	if _, in := h.Current().Lookup(key); !in {
		t.Error("the machine that had joined is gone")
	}
}

func TestTokenThatWasTakenOutByHandIsNotResurrected(t *testing.T) {
	h, alice := acme(t)
	tok, kept := h.add(alice, "*", 2), h.add(alice, "*", 2)
	if err := keys.RewriteTenants(h.path(), func(edit *keys.TenantsEdit) error {
		edit.RemoveJoin(tok.id)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if _, known := h.Current().Join(tok.id); !known {
		t.Fatal("the roster has seen the change already: the test shows nothing")
	}
	h.come(tok, newKey(t, keys.Executor), "builder", roster.JoinUnknown)
	h.come(kept, newKey(t, keys.Executor), "builder", roster.Joined)
	if strings.Contains(h.disk(), tok.id.String()) {
		t.Errorf("it is back:\n%s", h.disk())
	}
}

func TestTenantHasABoundedNumberOfTokensAndOldOnesMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, alice, bob := two(t)
		var text strings.Builder
		text.WriteString("tenant acme\n")
		for range roster.MaxTokens - 1 {
			hash := strings.Repeat("ab", 32)
			text.WriteString("join " + newToken().id.String() + " sha256:" + hash + " expires=" + time.Now().Add(time.Hour).UTC().Format(time.RFC3339) + "\n")
		}
		if err := os.WriteFile(h.path(), []byte(text.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		last := h.add(alice, "*", 1)
		full := func() *wire.Error { return h.AddToken(alice, newToken().request("*", 1, time.Hour)) }
		err := full()
		wantRefused(t, "one more", err, wire.CodeBusy)
		if err != nil && err.RetryAfter <= 0 {
			t.Error("busy without a retry-after")
		}
		if err := h.AddToken(alice, last.request("*", 1, time.Hour)); err != nil {
			t.Errorf("one that is there already: %v", err)
		}
		h.add(bob, "*", 1) // another tenant is not concerned
		if err := h.RemoveToken(alice, last.id); err != nil {
			t.Fatal(err)
		}
		h.add(alice, "*", 1)
		time.Sleep(time.Hour + roster.Afterlife) // on the bubble's clock
		wantRefused(t, "in the afterlife", full(), wire.CodeBusy)
		time.Sleep(time.Second)
		if err := full(); err != nil {
			t.Errorf("after the afterlife: %v", err)
		}
		if n := len(h.Current().Joins("acme")); n != 1 {
			t.Errorf("%d tokens are left, want the new one", n)
		}
		if n := len(h.Current().Joins("other")); n != 1 {
			t.Errorf("the other tenant has %d tokens, want its own", n)
		}
	})
}
