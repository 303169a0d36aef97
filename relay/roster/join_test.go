package roster_test

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
	"github.com/postern-relay/postern/wire"
)

func TestJoinIsInForceAndOnDiskWhenItReturns(t *testing.T) {
	h, alice := acme(t)
	tok, key := h.add(alice, "builder-*", 2), newKey(t, keys.Executor)
	m, _ := h.come(tok, key, "builder-1", roster.Joined)
	proof := tok.proof(key, "builder-1")
	if m.Key != key || m.Name != "builder-1" || m.Tenant != "acme" || m.Token != tok.id || m.MAC != proof.MAC || m.Since.IsZero() {
		t.Errorf("joined as %+v", m)
	}
	if h.used(tok) != 1 {
		t.Errorf("%d uses, want 1", h.used(tok))
	}
	h.restart()
	again, in := h.Current().Lookup(key)
	if again.Line = m.Line; !in || again != m {
		t.Errorf("after a restart: %+v, want %+v", again, m)
	}
}

func TestSameKeyWithItsTokenIsAMemberAlreadyAndCountsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, alice := acme(t)
		tok, key := h.add(alice, "*", 1), newKey(t, keys.Executor)
		first, _ := h.come(tok, key, "builder", roster.Joined)
		for range 2 {
			if m, _ := h.come(tok, key, "builder", roster.JoinAgain); m != first {
				t.Errorf("again as %+v, want %+v", m, first)
			}
			time.Sleep(2 * time.Hour) // on the bubble's clock: the token has expired, the member has not
			h.restart()
		}
		if h.used(tok) != 1 {
			t.Errorf("%d uses, want 1", h.used(tok))
		}
	})
}

// refusals are the answers to joins that are not granted, before any of which a token
// with one use was spent by a machine named builder.
func TestRefusedJoinSaysWhyToThoseWithTheSecretOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, alice, bob := two(t, line(keys.Member{Key: newKey(t, keys.Executor), Name: "builder"}))
		spent := h.add(alice, "*", 1)
		h.come(spent, newKey(t, keys.Executor), "builder", roster.Joined)
		fresh := h.add(alice, "b*", 5)
		foreign := newKey(t, keys.Executor)
		h.come(h.add(bob, "*", 1), foreign, "there", roster.Joined)
		wrong, wrongSpent := fresh, spent
		wrong.secret[31] ^= 1
		wrongSpent.secret[0] ^= 1

		for _, c := range []struct {
			name   string
			tok    token
			key    keys.PublicKey
			as     string
			want   roster.JoinResult
			code   wire.Code
			saying string
		}{
			{"a second key with a spent token", spent, newKey(t, keys.Executor), "other", roster.JoinSpent, wire.CodeToken, "somebody else"},
			{"a name that another key has", fresh, newKey(t, keys.Executor), "builder", roster.JoinName, wire.CodeNameTaken, "builder"},
			{"a name outside the pattern", fresh, newKey(t, keys.Executor), "tester", roster.JoinName, wire.CodeNameTaken, "b*"},
			{"no name", fresh, newKey(t, keys.Executor), "", roster.JoinName, wire.CodeNameTaken, "b*"},
			{"a malformed name", fresh, newKey(t, keys.Executor), "b\nclient x", roster.JoinName, wire.CodeNameTaken, "b*"},
			{"a key of another tenant", fresh, foreign, "b2", roster.JoinForeign, wire.CodeUnauthorized, "another tenant"},
			{"a wrong secret", wrong, newKey(t, keys.Executor), "b3", roster.JoinUnknown, wire.CodeToken, "does not know"},
			{"a wrong secret of a spent token", wrongSpent, newKey(t, keys.Executor), "b3", roster.JoinUnknown, wire.CodeToken, "does not know"},
			{"an unknown id", newToken(), newKey(t, keys.Executor), "b3", roster.JoinUnknown, wire.CodeToken, "does not know"},
			{"a wrong secret and a key of another tenant", wrong, foreign, "b3", roster.JoinUnknown, wire.CodeToken, "does not know"},
		} {
			_, err := h.come(c.tok, c.key, c.as, c.want)
			if err.Code != c.code || !strings.Contains(err.Text, c.saying) {
				t.Errorf("%s: %v, want code %v and %q", c.name, err, c.code, c.saying)
			}
		}
		if h.used(fresh) != 0 || h.used(spent) != 1 {
			t.Errorf("refused joins were counted: %d and %d uses", h.used(fresh), h.used(spent))
		}
		time.Sleep(time.Hour) // on the bubble's clock
		_, err := h.come(fresh, newKey(t, keys.Executor), "b4", roster.JoinExpired)
		wantRefused(t, "expired", err, wire.CodeToken)
	})
}

func TestTokenIsGoodUntilItsLastSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, alice := acme(t)
		tok := h.add(alice, "*", 2)
		time.Sleep(time.Hour - time.Second) // on the bubble's clock
		h.come(tok, newKey(t, keys.Executor), "in-time", roster.Joined)
		time.Sleep(time.Second)
		h.come(tok, newKey(t, keys.Executor), "late", roster.JoinExpired)
	})
}

func TestWrongSecretAndUnknownIDAnswerInTheSameBytes(t *testing.T) {
	h, alice := acme(t)
	tok := h.add(alice, "*", 1)
	tok.secret[7] ^= 0x10
	bytesOf := func(tok token) []byte {
		_, err := h.come(tok, newKey(t, keys.Executor), "b", roster.JoinUnknown)
		b, encodeErr := wire.Encode(wire.Refusal(err))
		if encodeErr != nil {
			t.Fatal(encodeErr)
		}
		return b
	}
	if a, b := bytesOf(tok), bytesOf(newToken()); !bytes.Equal(a, b) {
		t.Errorf("wrong secret: %x, unknown id: %x", a, b)
	}
}

func TestMemberThatJoinsWithANewTokenHasItsNewAnnouncement(t *testing.T) {
	h, alice := acme(t)
	key := newKey(t, keys.Executor)
	first, second := h.add(alice, "*", 1), h.add(alice, "*", 1)
	h.come(first, key, "builder", roster.Joined)
	m, _ := h.come(second, key, "builder", roster.Joined)
	if m.Token != second.id || m.MAC != second.proof(key, "builder").MAC {
		t.Errorf("in force: %+v, want the announcement of the second token", m)
	}
	if h.used(first) != 1 || h.used(second) != 1 || len(h.Current().Named("acme", keys.Executor, "builder")) != 1 {
		t.Errorf("uses %d and %d, want one each, and one member", h.used(first), h.used(second))
	}
	third := h.add(alice, "*", 1)
	if m, _ = h.come(third, key, "renamed", roster.Joined); m.Name != "renamed" || len(h.Current().Named("acme", keys.Executor, "builder")) != 0 {
		t.Errorf("in force: %+v, want the new name instead of the old one", m)
	}
}

func TestMachineThatReplacesItsKeyCanJoinAgainInBetween(t *testing.T) {
	h, alice := acme(t)
	old, next := newKey(t, keys.Executor), newKey(t, keys.Executor)
	m, _ := h.come(h.add(alice, "*", 1), old, "builder", roster.Joined)
	if err := h.Follow(m, next); err != nil {
		t.Fatal(err)
	}
	for _, key := range []keys.PublicKey{old, next} {
		if m, _ := h.come(h.add(alice, "*", 1), key, "builder", roster.Joined); (m.Follows == old) != (key == next) {
			t.Errorf("joined as %+v, want it to follow what it followed", m)
		}
	}
	h.come(h.add(alice, "*", 1), newKey(t, keys.Executor), "builder", roster.JoinName)
}

func TestListedMachineThatJoinsGetsItsAnnouncementToTheDirectory(t *testing.T) {
	key := newKey(t, keys.Executor)
	h, alice := acme(t, line(keys.Member{Key: key, Name: "builder"}))
	first := h.add(alice, "*", 1)
	h.come(first, key, "other", roster.JoinName) // the operator's word
	m, _ := h.come(first, key, "builder", roster.Joined)
	if m.Name != "builder" || m.Token != first.id || m.MAC != first.proof(key, "builder").MAC {
		t.Errorf("in force: %+v, want the announcement", m)
	}
	h.come(first, key, "builder", roster.JoinAgain)
	second := h.add(alice, "*", 1)
	_, err := h.come(second, key, "other", roster.JoinName) // still the operator's word
	if !strings.Contains(err.Text, "builder") || h.used(second) != 0 {
		t.Errorf("%v, and %d uses: want the listed name, and nothing counted", err, h.used(second))
	}
}

func TestTokenThatTheOperatorListsCountsItsUses(t *testing.T) {
	tok := newToken()
	hash := keys.HashJoinSecret(tok.id, tok.secret)
	var hex strings.Builder
	for _, b := range hash {
		const digits = "0123456789abcdef"
		hex.WriteString(digits[b>>4:b>>4+1] + digits[b&15:b&15+1])
	}
	h, alice := acme(t, "join "+tok.id.String()+" sha256:"+hex.String()+" uses=2 expires=9999-01-01T00:00:00Z")
	for i, want := range []roster.JoinResult{roster.Joined, roster.Joined, roster.JoinSpent} {
		h.come(tok, newKey(t, keys.Executor), "m"+string(rune('a'+i)), want)
		h.restart()
	}
	wantRefused(t, "removing it", h.RemoveToken(alice, tok.id), wire.CodeUnauthorized)
}

func TestFailingDiskGrantsNothing(t *testing.T) {
	h, alice := acme(t)
	tok, key := h.add(alice, "*", 1), newKey(t, keys.Executor)
	// A folder in place of the file cannot be replaced, not even by root.
	kept := h.disk()
	if err := os.Remove(h.path()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(h.path()+"/in the way", 0o700); err != nil {
		t.Fatal(err)
	}
	m, result, err := h.Join(key, "builder", tok.proof(key, "builder"))
	wantRefused(t, "join", err, wire.CodeInternal)
	if _, in := h.Current().Lookup(key); in || result != roster.JoinFailed || m != (keys.Member{}) {
		t.Errorf("joined as %+v, %s, want nothing", m, result)
	}
	wantRefused(t, "token", h.AddToken(alice, newToken().request("*", 1, time.Hour)), wire.CodeInternal)
	wantRefused(t, "token back", h.RemoveToken(alice, tok.id), wire.CodeInternal)
	if log := h.log.String(); !strings.Contains(log, "level=ERROR") || strings.Contains(err.Text, h.dir) {
		t.Errorf("the operator is told %q, the machine %q", log, err.Text)
	}
	if err := os.RemoveAll(h.path()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(h.path(), []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	h.come(tok, key, "builder", roster.Joined)
}

// A stolen client key must not leave tokens behind that let machines in after it was removed.
func TestTokenGoesWithTheClientThatMadeIt(t *testing.T) {
	h, alice, bob := two(t)
	tok := h.add(alice, "*", 2)
	h.come(tok, newKey(t, keys.Executor), "before", roster.Joined)
	h.relist("tenant acme", "tenant other", line(bob))
	_, err := h.come(tok, newKey(t, keys.Executor), "after", roster.JoinUnknown)
	wantRefused(t, "a token whose maker was removed", err, wire.CodeToken)
	if h.used(tok) != 1 {
		t.Errorf("%d uses, want 1", h.used(tok))
	}
}
