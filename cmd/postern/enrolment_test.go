//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
)

// waiting is a client that waits for the machines of one token.
type waiting struct {
	t *testing.T
	home
	pairing keys.Pairing
}

func newWaiting(t *testing.T, uses int) *waiting {
	t.Helper()
	w := &waiting{t: t, home: home{t.TempDir()}}
	w.pairing = keys.Pairing{
		ID: keys.TokenID{1}, Secret: [32]byte{2}, Pattern: "*", Uses: uses, Expires: time.Now().Add(time.Hour).Truncate(time.Second).UTC(),
		Relay: keys.RelayURL{Host: "127.0.0.1", Port: 4433, Key: newPublic(t, keys.Relay)},
	}
	if err := keys.AddPairing(w.join(pairingsFile), w.pairing); err != nil {
		t.Fatal(err)
	}
	return w
}

func newPublic(t *testing.T, kind keys.Kind) keys.PublicKey {
	t.Helper()
	key, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return key.Public()
}

// joins is a machine that comes with the token.
func (w *waiting) joins(name string) client.ExecutorEntry {
	key := newPublic(w.t, keys.Executor)
	return client.ExecutorEntry{Key: key, Name: name, Token: w.pairing.ID, MAC: keys.AnnouncementMAC(w.pairing.Secret, w.pairing.ID, key, name)}
}

// hears is what believe says of a list.
func (w *waiting) hears(listed ...client.ExecutorEntry) string {
	w.t.Helper()
	problems, err := w.believe(w.pairing.Relay, listed)
	if err != nil {
		w.t.Fatal(err)
	}
	if problem := errors.Join(problems...); problem != nil {
		return problem.Error()
	}
	return ""
}

// trusts fails the test unless the client knows exactly these, and waits for more as told.
func (w *waiting) trusts(pairingStays bool, want ...client.ExecutorEntry) {
	w.t.Helper()
	known, err := w.known()
	if err != nil {
		w.t.Fatal(err)
	}
	names := func(list []client.ExecutorEntry) map[string]string {
		m := make(map[string]string)
		for _, e := range list {
			m[e.Name] = e.Key.String()
		}
		return m
	}
	got := make(map[string]string)
	for _, k := range known.All() {
		got[k.Alias] = k.Key.String()
	}
	if diff := cmp.Diff(names(want), got); diff != "" {
		w.t.Errorf("known executors (-want +got):\n%s", diff)
	}
	if left, err := w.pairings(); err != nil || (len(left) == 1) != pairingStays {
		w.t.Errorf("%d pairings are left, %v; one has to stay: %v", len(left), err, pairingStays)
	}
}

// A process that has read the pairing before another one pinned the executor and was done with the pairing takes nothing away.
func TestSlowProcessKeepsWhatAnotherOneHasPinned(t *testing.T) {
	t.Parallel()
	w := newWaiting(t, 1)
	box := w.joins("box")
	if problems := w.hears(box); problems != "" {
		t.Fatal(problems)
	}
	w.trusts(false, box)
	if _, err := w.pin(w.pairing, box); err != nil {
		t.Errorf("the slow one: %v", err)
	}
	w.trusts(false, box)
}

// The same, where the name is another executor's or nobody's: nothing is trusted, and the error says why.
func TestAnnouncementOfAWithdrawnTokenIsNotTrusted(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]*client.ExecutorEntry{"no line": nil, "another key": {Key: newPublic(t, keys.Executor), Name: "other"}} {
		w := newWaiting(t, 1)
		box := w.joins("box")
		var want []client.ExecutorEntry
		if line != nil {
			want = append(want, *line)
			w.adds(*line)
		}
		if err := keys.RemovePairing(w.join(pairingsFile), w.pairing.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := w.pin(w.pairing, box); err == nil || !strings.Contains(err.Error(), "was withdrawn or used up") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", name, err)
		}
		w.trusts(false, want...)
	}
}

// adds is what a user does by hand.
func (w *waiting) adds(e client.ExecutorEntry) {
	w.t.Helper()
	if err := keys.AddKnownExecutor(w.join(knownFile), keys.KnownExecutor{Alias: e.Name, Key: e.Key, Relay: w.pairing.Relay}); err != nil {
		w.t.Fatal(err)
	}
}

// A process that dies after it has counted the use leaves the rest to the next one, also when that was the last use.
func TestCrashBetweenCountingAndTrustingLosesNoExecutor(t *testing.T) {
	t.Parallel()
	for _, uses := range []int{1, 2} {
		w := newWaiting(t, uses)
		box := w.joins("box")
		counted := w.pairing
		counted.Pinned = append(counted.Pinned, box.Key)
		if err := keys.UpdatePairing(w.join(pairingsFile), counted); err != nil {
			t.Fatal(err)
		}
		if problems := w.hears(); problems != "" { // a list of before it joined
			t.Error(problems)
		}
		w.trusts(true)
		if problems := w.hears(box); problems != "" {
			t.Error(problems)
		}
		w.trusts(uses > 1, box)
	}
}

// A counted executor is added again only on its proof.
func TestCountedExecutorStillHasToProveItself(t *testing.T) {
	t.Parallel()
	w := newWaiting(t, 2)
	box := w.joins("box")
	counted := w.pairing
	counted.Pinned = append(counted.Pinned, box.Key)
	if err := keys.UpdatePairing(w.join(pairingsFile), counted); err != nil {
		t.Fatal(err)
	}
	box.Name = "evil"
	if problems := w.hears(box); !strings.Contains(problems, "not by who had the token") {
		t.Errorf("got %q", problems)
	}
	w.trusts(true)
}

func TestNameThatIsTakenCostsNoUse(t *testing.T) {
	t.Parallel()
	w := newWaiting(t, 1)
	box, other := w.joins("box"), client.ExecutorEntry{Key: newPublic(t, keys.Executor), Name: "box"}
	w.adds(other)
	for range 2 {
		if problems := w.hears(box); !strings.Contains(problems, `executor box is not trusted: alias "box" already stands for another key, `+other.Key.String()) {
			t.Errorf("got %q", problems)
		}
		w.trusts(true, other)
	}
	if err := keys.RemoveKnownExecutor(w.join(knownFile), "box"); err != nil {
		t.Fatal(err)
	}
	if problems := w.hears(box); problems != "" {
		t.Error(problems)
	}
	w.trusts(false, box)
}

// What the user or a successor's key has made of a line stays, while the pairing waits for more.
func TestTrustedExecutorKeepsTheNameAndKeyThatItHasNow(t *testing.T) {
	t.Parallel()
	for _, now := range []client.ExecutorEntry{{Name: "box", Key: newPublic(t, keys.Executor)}, {Name: "mine"}} {
		w := newWaiting(t, 2)
		box := w.joins("box")
		if problems := w.hears(box); problems != "" {
			t.Error(problems)
		}
		if err := keys.RemoveKnownExecutor(w.join(knownFile), "box"); err != nil {
			t.Fatal(err)
		}
		if now.Key.IsZero() {
			now.Key = box.Key
		}
		w.adds(now)
		if problems := w.hears(box); problems != "" {
			t.Errorf("%s: %s", now.Name, problems)
		}
		w.trusts(true, now)
	}
}

func TestManyAtOnceTrustAllThatJoined(t *testing.T) {
	t.Parallel()
	for range 20 {
		w := newWaiting(t, 3)
		listed := []client.ExecutorEntry{w.joins("a"), w.joins("b"), w.joins("c")}
		problems := make([]error, 8)
		var group sync.WaitGroup
		for i := range problems {
			group.Go(func() {
				refused, err := w.believe(w.pairing.Relay, listed)
				problems[i] = errors.Join(append(refused, err)...)
			})
		}
		group.Wait()
		if err := errors.Join(problems...); err != nil {
			t.Error(err)
		}
		w.trusts(false, listed...)
	}
}

// The same with the program itself: whichever of them is first, the executor is known afterwards, and to all of them.
func TestParallelExecsAfterAJoinLeaveTheExecutorKnown(t *testing.T) {
	e := newEnrolled(t)
	for round := range 5 {
		name := fmt.Sprintf("vm%d", round)
		e.until("postern token new --name " + name + " --out ../" + name + ".token")
		e.daemon("postern executor --state ../" + name + " --workspace /srv/build --join ../" + name + ".token")
		said := e.run(`for i in 1 2 3 4; do postern exec ` + name + ` -- true 2>&1 & done; wait`)
		if strings.Contains(said, "unknown executor") {
			t.Errorf("%s: %s", name, said)
		}
		if !e.has(knownFileHere, name+" exec_") {
			t.Fatalf("%s is not known:\n%s", name, said)
		}
		e.until("postern exec " + name + " -- true")
	}
	if b, err := os.ReadFile(filepath.Join(e.dir, "home/.config/postern/pairings")); err != nil && !errors.Is(err, fs.ErrNotExist) || len(b) > 0 {
		t.Errorf("pairings are left: %d bytes, %v", len(b), err)
	}
}

func TestExecutorThatIsTrustedNoLongerIsNotLearnedAgain(t *testing.T) {
	w := newWaiting(t, 3)
	kept, stolen := w.joins("kept"), w.joins("stolen")
	if problem := w.hears(kept, stolen); problem != "" {
		t.Fatal(problem)
	}
	w.trusts(true, kept, stolen)
	var told strings.Builder
	if err := w.distrust(stdio{err: &told}, "stolen"); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(told.String(), w.pairing.ID.String()) {
		t.Errorf("told %q, want the token that is forgotten", told.String())
	}
	w.hears(kept, stolen)
	w.trusts(false, kept)
}

func TestExecutorThatWasRekeyedAndIsTrustedNoLongerIsNotLearnedByItsOldKey(t *testing.T) {
	w := newWaiting(t, 3)
	kept, moved := w.joins("kept"), w.joins("moved")
	if problem := w.hears(kept, moved); problem != "" {
		t.Fatal(problem)
	}
	if _, err := w.putKey(moved.Key, newPublic(t, keys.Executor)); err != nil {
		t.Fatal(err)
	}
	if err := w.distrust(stdio{err: io.Discard}, "moved"); err != nil {
		t.Fatal(err)
	}
	w.hears(kept, moved) // a relay that lists the old key still
	w.trusts(false, kept)
}

// The process that counted the use died before it trusted the executor, and the alias was given away meanwhile.
func TestCountedExecutorWhoseAliasIsOneOfAnotherRelayIsNotPassedOver(t *testing.T) {
	w := newWaiting(t, 1)
	machine := w.joins("builder")
	w.pairing.Pinned = []keys.PublicKey{machine.Key}
	if err := keys.UpdatePairing(w.join(pairingsFile), w.pairing); err != nil {
		t.Fatal(err)
	}
	other := keys.KnownExecutor{Alias: "builder", Key: newPublic(t, keys.Executor), Relay: keys.RelayURL{Host: "127.0.0.1", Port: 4434, Key: newPublic(t, keys.Relay)}}
	if err := keys.AddKnownExecutor(w.join(knownFile), other); err != nil {
		t.Fatal(err)
	}
	if problem := w.hears(machine); !strings.Contains(problem, "builder") {
		t.Errorf("told %q, want that the alias is taken", problem)
	}
	if err := w.distrust(stdio{err: io.Discard}, "builder"); err != nil {
		t.Fatal(err)
	}
	if problem := w.hears(machine); problem != "" {
		t.Error(problem)
	}
	w.trusts(false, machine)
}
