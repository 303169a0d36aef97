package keys

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// watched is a file under watch whose poll the test calls itself, and what was reported.
type watched struct {
	*File[*AuthorizedClients]
	t       *testing.T
	changes []int // clients at each change
	errors  []error
}

func newWatched(t *testing.T, content string) *watched {
	t.Helper()
	w := &watched{t: t}
	path := filepath.Join(t.TempDir(), "authorized_clients")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := WatchFile(path, ParseAuthorizedClients)
	if err != nil {
		t.Fatal(err)
	}
	w.File = file
	return w
}

// write changes the file in place.
func (w *watched) write(content string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(content), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// look polls until what was written counts, and once more, since a report must not be repeated, and checks the number of
// reports so far and of clients in force.
func (w *watched) look(what string, changes, failures, inForce int) {
	w.t.Helper()
	for range 3 {
		w.poll(
			func(clients *AuthorizedClients) { w.changes = append(w.changes, len(clients.All())) },
			func(err error) { w.errors = append(w.errors, err) })
		w.wait()
	}
	if len(w.changes) != changes || len(w.errors) != failures || len(w.Current().All()) != inForce {
		w.t.Errorf("%s: changes %v, errors %v, %d clients in force; want %d changes, %d errors, %d clients",
			what, w.changes, w.errors, len(w.Current().All()), changes, failures, inForce)
	}
}

func TestWatchedFileFollowsGoodChangesOnly(t *testing.T) {
	t.Parallel()
	alice, bob := fixedKey(t, Client, 1).String()+"\n", fixedKey(t, Client, 2).String()+"\n"
	w := newWatched(t, alice)
	w.look("unchanged", 0, 0, 1)
	w.write(alice + bob)
	w.look("one more client", 1, 0, 2)
	w.write(alice + bob)
	w.look("the same content again", 1, 0, 2)
	w.write(alice + "restricted " + bob)
	w.look("a bad line", 1, 1, 2)
	w.write(alice + "strict " + bob)
	w.look("another bad line", 1, 2, 2)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.look("removed", 1, 3, 2)
	if !errors.Is(w.errors[2], fs.ErrNotExist) {
		t.Errorf("error of a removed file: %v, want fs.ErrNotExist", w.errors[2])
	}
	w.write(alice + bob)
	w.look("back with the old content", 2, 3, 2)
	w.write("")
	w.look("emptied", 3, 3, 0)
	if err := os.WriteFile(w.path+".new", []byte(alice), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.path+".new", w.path); err != nil {
		t.Fatal(err)
	}
	w.look("replaced", 4, 3, 1)
	if modesMatter {
		if err := os.Chmod(w.path, 0o602); err != nil {
			t.Fatal(err)
		}
		w.look("writable by everybody", 4, 4, 1)
	}
}

// wait is the time that a file has to stay as it is.
func (w *watched) wait() {
	if !w.draft.IsZero() {
		w.draft = w.draft.Add(-stillFor)
	}
}

// notYet polls as often as Run does when it has been held up, and wants nothing to come of it.
func (w *watched) notYet(what string) {
	w.t.Helper()
	for range 3 {
		w.poll(
			func(*AuthorizedClients) { w.t.Errorf("%s: taken at first sight", what) },
			func(err error) { w.t.Errorf("%s: refused at first sight: %v", what, err) })
		if w.draft.IsZero() {
			w.t.Errorf("%s: not seen", what)
		}
		w.draft = time.Now().Add(time.Hour) // however long this machine takes for the next look
	}
	w.draft = time.Now()
}

// An editor that rewrites a file in place empties it first, and writes a long one in parts: nobody is thrown out for that, and
// half a line is no mistake yet.
func TestFileThatIsBeingWrittenShutsNobodyOut(t *testing.T) {
	t.Parallel()
	alice, bob := fixedKey(t, Client, 1).String()+"\n", fixedKey(t, Client, 2).String()+"\n"
	w := newWatched(t, alice)
	for _, part := range []string{"", bob, bob + alice[:20], bob + alice} {
		w.write(part)
		w.notYet("written: " + part)
	}
	w.wait()
	w.look("written at last", 1, 0, 2)
	w.write("")
	w.notYet("empty again")
	w.wait()
	w.look("empty and meant so", 2, 0, 0)
}

// The old file is moved away, and the new one written where it was, as some editors do.
func TestFileThatIsMadeAnewAndStillEmptyShutsNobodyOut(t *testing.T) {
	t.Parallel()
	alice := fixedKey(t, Client, 1).String() + "\n"
	w := newWatched(t, alice)
	if err := os.Rename(w.path, w.path+"~"); err != nil {
		t.Fatal(err)
	}
	w.write("")
	w.notYet("still empty")
	w.write(alice[:20])
	w.notYet("half of it")
	w.write(alice)
	w.look("written", 0, 0, 1)
}

// To remove somebody from a list that others go on writing to is to remove somebody.
func TestFileThatIsNeverLeftAloneCountsAllTheSame(t *testing.T) {
	t.Parallel()
	alice, bob := fixedKey(t, Client, 1).String()+"\n", fixedKey(t, Client, 2).String()+"\n"
	w := newWatched(t, alice+bob)
	w.write(bob)
	w.notYet("the first writing")
	w.write(bob + "# and\n")
	w.notYet("the second")
	w.wait()
	w.write(bob + "# so on\n")
	w.poll(func(*AuthorizedClients) {}, func(err error) { t.Error(err) })
	if n := len(w.Current().All()); n != 1 {
		t.Errorf("%d clients in force after the time, want 1", n)
	}
}

// What was seen before the file was gone says nothing of the file that comes in its place.
func TestDraftIsForgottenWithItsFile(t *testing.T) {
	t.Parallel()
	alice := fixedKey(t, Client, 1).String() + "\n"
	w := newWatched(t, alice)
	w.write("")
	w.notYet("emptied")
	w.wait()
	if err := os.Rename(w.path, w.path+"~"); err != nil {
		t.Fatal(err)
	}
	w.look("gone", 0, 1, 1)
	w.write("")
	w.notYet("made anew")
}

func TestFileThatReplacesTheOldOneIsInForceAtOnce(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "")
	if err := AddAuthorizedClient(w.path, fixedKey(t, Client, 1), "alice"); err != nil {
		t.Fatal(err)
	}
	w.poll(func(*AuthorizedClients) {}, func(err error) { t.Error(err) })
	if n := len(w.Current().All()); n != 1 {
		t.Errorf("%d clients in force after one look, want 1", n)
	}
}

// TestWatchedFileSeesAChangeThatItsTimesHide: a change within the tick of the file clock, of the same size and with the times
// set back, shows in nothing but the content.
func TestWatchedFileSeesAChangeThatItsTimesHide(t *testing.T) {
	t.Parallel()
	alice, bob := fixedKey(t, Client, 1), fixedKey(t, Client, 2)
	w := newWatched(t, alice.String())
	w.write(bob.String())
	info, err := os.Stat(w.path)
	if err != nil {
		t.Fatal(err)
	}
	w.settled, w.seen = false, identify(info) // as if the change had come within the same tick as the first reading
	w.look("hidden change", 1, 0, 1)
	if _, ok := w.Current().Lookup(alice); ok {
		t.Error("a removed key is still let in")
	}
}

func TestWatchFileWantsAGoodFirstLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := WatchFile(filepath.Join(dir, "missing"), ParseAuthorizedClients); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("WatchFile of a missing file: %v, want fs.ErrNotExist", err)
	}
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := WatchFile(bad, ParseAuthorizedClients); err == nil || !strings.Contains(err.Error(), bad+":1: ") {
		t.Errorf("WatchFile of a bad file: %v, want an error with file and line", err)
	}
	if _, err := WatchFile(dir, ParseAuthorizedClients); err == nil {
		t.Error("WatchFile of a folder succeeded")
	}
	if clients := new(File[*AuthorizedClients]).Current(); clients != nil {
		t.Errorf("Current of the zero File = %v, want nil", clients)
	}
}

func TestRunReportsAChangeAndEndsWithItsContext(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	changed, failed, ended := make(chan *AuthorizedClients, 1), make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func(clients *AuthorizedClients) { changed <- clients }, func(err error) { failed <- err })
	}()
	key := fixedKey(t, Client, 1)
	if err := AddAuthorizedClient(w.path, key, "alice"); err != nil {
		t.Error(err)
	}
	if clients := <-changed; clients != w.Current() || len(clients.All()) != 1 {
		t.Errorf("onChange got %v, want the current list with one client", clients.All())
	}
	if err := errors.Join(os.WriteFile(w.path+".new", []byte("x "+strings.Repeat("y", 100)), 0o600), os.Rename(w.path+".new", w.path)); err != nil {
		t.Error(err)
	}
	if err := <-failed; !strings.Contains(err.Error(), ":1: ") {
		t.Errorf("onError got %v, want an error with its line", err)
	}
	if _, ok := w.Current().Lookup(key); !ok {
		t.Error("a bad file took the old one out of force")
	}
	cancel()
	<-ended
	w.Run(ctx, nil, nil) // returns at once
}

// TestSettledFileIsNotReadAgain: a file that did not change for a while costs one stat call.
func TestSettledFileIsNotReadAgain(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "")
	w.settled = true
	w.sum[0]++ // a reading would take this for a change
	w.look("settled", 0, 0, 0)
	w.settled = false
	w.look("not settled", 1, 0, 0)
}
