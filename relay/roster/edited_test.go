package roster_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

func TestStaleSaveOfTheListGivesNoUseBack(t *testing.T) {
	h, alice := acme(t)
	tok := h.add(alice, "*", 1)
	stale := h.disk()
	h.come(tok, newKey(t, keys.Executor), "builder", roster.Joined)
	if err := os.WriteFile(h.path(), []byte(stale), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Reload(); err != nil {
		t.Fatal(err)
	}
	if h.used(tok) != 0 {
		t.Fatal("the file does not say what the editor saved: the test shows nothing")
	}
	h.come(tok, newKey(t, keys.Executor), "thief", roster.JoinSpent)
}

// What is missing for a moment, or for good, must not come back with nothing in it but the next change.
func TestListThatIsMissingOrEmptyIsNotBegunAnew(t *testing.T) {
	for name, take := range map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
	} {
		h, alice := acme(t)
		tok, key := h.add(alice, "*", 1), newKey(t, keys.Executor)
		whole := h.disk()
		if err := take(h.path()); err != nil {
			t.Fatal(err)
		}
		wantRefused(t, name, h.AddToken(alice, newToken().request("*", 1, roster.MaxTTL)), wire.CodeInternal)
		h.come(tok, key, "builder", roster.JoinFailed)
		if h.disk() != "" {
			t.Errorf("%s: now it says %q", name, h.disk())
		}
		if err := os.WriteFile(h.path(), []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		h.come(tok, key, "builder", roster.Joined)
	}
}

func TestTenantHasABoundedNumberOfEnrolledMachines(t *testing.T) {
	tok, known := newToken(), newKey(t, keys.Executor)
	var text strings.Builder
	fmt.Fprintf(&text, "tenant acme\nexec %s known\n", known)
	for i := range roster.MaxEnrolled - 1 {
		fmt.Fprintf(&text, "exec %s vm-%d\n", newKey(t, keys.Executor), i)
	}
	h, _ := acme(t, "join "+tok.id.String()+" sha256:"+fmt.Sprintf("%x", keys.HashJoinSecret(tok.id, tok.secret))+" uses=2 expires=2999-01-01T00:00:00Z")
	if err := os.WriteFile(h.path(), []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := h.Reload(); err != nil {
		t.Fatal(err)
	}
	_, err := h.come(tok, newKey(t, keys.Executor), "one-more", roster.JoinFull)
	wantRefused(t, "one more", err, wire.CodeBusy)
	h.come(tok, known, "known", roster.Joined) // takes nobody's place
	if err := keys.RemoveMember(h.path(), known); err != nil {
		t.Fatal(err)
	}
	h.come(tok, newKey(t, keys.Executor), "one-more", roster.Joined)
}

func TestTokenIsWithdrawnWhenItsMakerMovesToAnotherTenant(t *testing.T) {
	h, alice, bob := two(t)
	tok := h.add(alice, "*", 2)
	key := newKey(t, keys.Executor)
	h.come(tok, key, "builder", roster.Joined)
	h.relist("tenant acme", "tenant other", line(bob), line(alice))
	h.come(tok, newKey(t, keys.Executor), "late", roster.JoinUnknown)
}
