package roster_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/roster"
)

func TestBadListIsRefusedWholeAndTheOldOneStaysInForce(t *testing.T) {
	h, alice := acme(t)
	second := newKey(t, keys.Client)
	for name, lines := range map[string][]string{
		"an unknown word":     {"tenant acme", line(keys.Member{Key: second, Name: "second"}), "clinet x"},
		"a key that is there": {"tenant acme", line(alice), line(alice)},
		"no tenant":           {line(alice)},
	} {
		h.list(lines...)
		err := h.Reload()
		if err == nil || !strings.Contains(err.Error(), roster.ListedFile) {
			t.Errorf("%s: %v, want an error that names the file", name, err)
		}
		h.lookup(alice.Key)
		h.wantGone("what the bad list admits", second)
	}
	tok := h.add(alice, "*", 1) // changes of the relay's own list go on beside it
	h.come(tok, newKey(t, keys.Executor), "builder", roster.Joined)
	h.relist("tenant acme", line(keys.Member{Key: second, Name: "second"}))
	h.lookup(second)
	h.wantGone("alice", alice.Key)
}

func TestBadEnrolledListKeepsNoKeyInThatTheOperatorHasRemoved(t *testing.T) {
	h, alice := acme(t)
	key := newKey(t, keys.Executor)
	h.come(h.add(alice, "*", 1), key, "builder", roster.Joined)
	if err := os.WriteFile(h.path(), []byte("nonsense\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.list("tenant acme")
	if err := h.Reload(); err == nil || !strings.Contains(err.Error(), roster.EnrolledFile) {
		t.Errorf("reload: %v, want an error that names the file", err)
	}
	h.wantGone("the removed client", alice.Key)
	h.lookup(key) // of the bad list the old one is in force
}

func TestGoodListDoesNotHideThatTheOtherIsRefused(t *testing.T) {
	h, alice := acme(t)
	tok := h.add(alice, "*", 1)
	if err := h.Refused(); err != nil {
		t.Fatalf("two good files: %v", err)
	}
	h.list("nonsense")
	_ = h.Reload()                                                  // looked at below
	h.come(tok, newKey(t, keys.Executor), "builder", roster.Joined) // rereads the relay's own list, which is good
	if err := h.Refused(); err == nil || !strings.Contains(err.Error(), roster.ListedFile) {
		t.Errorf("refused: %v, want the operator's list", err)
	}
	if err := os.Remove(filepath.Join(h.dir, roster.ListedFile)); err != nil {
		t.Fatal(err)
	}
	_ = h.Reload()
	if err := h.Refused(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("refused: %v, want a missing file", err)
	}
	h.relist("tenant acme", line(alice))
	if err := h.Refused(); err != nil {
		t.Errorf("both are good again: %v", err)
	}
}

func TestRemovedTenantTakesItsMachinesAndTokensWithIt(t *testing.T) {
	h, alice, bob := two(t)
	key, kept := newKey(t, keys.Executor), newKey(t, keys.Executor)
	tok := h.add(alice, "*", 2)
	h.come(tok, key, "builder", roster.Joined)
	h.come(h.add(bob, "*", 1), kept, "builder", roster.Joined)
	h.relist("tenant other", line(bob))
	h.wantGone("its machine", key)
	h.come(tok, newKey(t, keys.Executor), "second", roster.JoinUnknown)
	h.come(tok, key, "builder", roster.JoinUnknown)
	if n := len(h.Current().Joins("acme")) + len(h.Current().Members("acme")); n != 0 {
		t.Errorf("%d entries of the tenant are in force", n)
	}
	h.lookup(kept)
	if n := strings.Count(h.log.String(), "is not in force"); n != 2 {
		t.Errorf("%d lines in the log for a machine and a token, want 2:\n%s", n, h.log)
	}
	if err := h.Reload(); err != nil || strings.Count(h.log.String(), "is not in force") != 2 {
		t.Errorf("%v, and the log says it again", err)
	}
}

func TestOperatorsWordWinsOverWhatIsEnrolled(t *testing.T) {
	h, alice, bob := two(t)
	key := newKey(t, keys.Executor)
	h.come(h.add(alice, "*", 1), key, "builder", roster.Joined)
	holder := keys.Member{Key: newKey(t, keys.Executor), Name: "builder"}

	h.relist("tenant acme", line(alice), line(holder), "tenant other", line(bob))
	h.lookup(holder.Key)
	h.wantGone("the machine whose name the operator has given to another", key)

	h.relist("tenant acme", line(alice), "tenant other", line(bob), line(keys.Member{Key: key, Name: "moved"}))
	if m := h.lookup(key); m.Tenant != "other" || m.Name != "moved" || !m.Token.IsZero() {
		t.Errorf("in force: %+v, want what the operator has written", m)
	}
	h.come(h.add(alice, "*", 1), key, "builder", roster.JoinForeign)

	h.relist("tenant acme", line(alice), "tenant other", line(bob))
	if m := h.lookup(key); m.Tenant != "acme" || m.Name != "builder" {
		t.Errorf("in force: %+v, want what it had joined as", m)
	}
}

func TestRunPutsChangesInForceThenTells(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, alice := acme(t)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		told := make(chan *keys.Tenants, 10)
		running.Go(func() { h.Run(ctx, func() { told <- h.Current() }) })
		synctest.Wait()

		second := newKey(t, keys.Client)
		h.list("tenant acme", line(alice), line(keys.Member{Key: second, Name: "second"}))
		time.Sleep(time.Second) // on the bubble's clock
		if _, in := (<-told).Lookup(second); !in {
			t.Error("told before the change was in force")
		}
		h.list("nonsense")
		time.Sleep(time.Second)
		h.lookup(second)
		if h.Refused() == nil {
			t.Error("nobody hears that the list was refused")
		}
		cancel()
		running.Wait()
		if log := h.log.String(); len(told) != 0 || strings.Count(log, "level=ERROR") != 1 {
			t.Errorf("told %d times of a bad list; log:\n%s", len(told), log)
		}
	})
}

func TestRosterNeedsTheOperatorsListAndTwoGoodFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := roster.Open(dir, nil); !os.IsNotExist(err) {
		t.Errorf("without a list: %v, want one that says it does not exist", err)
	}
	for _, bad := range []string{roster.ListedFile, roster.EnrolledFile} {
		dir := t.TempDir()
		for _, name := range []string{roster.ListedFile, roster.EnrolledFile} {
			text := "tenant acme\n"
			if name == bad {
				text += "nonsense\n"
			}
			if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if r, err := roster.Open(dir, nil); err == nil || r != nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("bad %s: %v, want an error that names it", bad, err)
		}
	}
}

func TestNameOfAMachineThatTheOperatorHasMovedIsFree(t *testing.T) {
	h, alice, bob := two(t)
	tok, key := h.add(alice, "*", 2), newKey(t, keys.Executor)
	h.come(tok, key, "builder", roster.Joined)
	h.relist("tenant acme", line(alice), "tenant other", line(bob), line(keys.Member{Key: key, Name: "moved"}))
	h.come(tok, newKey(t, keys.Executor), "builder", roster.Joined)
	h.restart()
	if m := h.lookup(key); m.Tenant != "other" || m.Name != "moved" {
		t.Errorf("in force: %+v, want what the operator has written", m)
	}
}
