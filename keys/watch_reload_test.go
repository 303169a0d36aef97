package keys

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestReloadReadsAtOnceAndRunTellsOfIt(t *testing.T) {
	t.Parallel()
	alice, bob := fixedKey(t, Client, 1).String()+"\n", fixedKey(t, Client, 2).String()+"\n"
	w := newWatched(t, alice)
	reload := func(what string, wantErr string, inForce int) {
		t.Helper()
		err := w.Reload()
		if (err != nil) != (wantErr != "") || err != nil && !strings.Contains(err.Error(), wantErr) {
			t.Errorf("%s: Reload = %v, want an error: %q", what, err, wantErr)
		}
		if n := len(w.Current().All()); n != inForce {
			t.Errorf("%s: %d clients in force, want %d", what, n, inForce)
		}
	}
	reload("unchanged", "", 1)
	w.look("unchanged", 0, 0, 1)
	w.write(alice + bob)
	w.settled, w.seen = true, fileID{}
	reload("one more client", "", 2)
	reload("and again", "", 2)
	w.look("one more client", 1, 0, 2)
	w.write("restricted " + bob)
	reload("bad", ":1: ", 2)
	w.look("bad, as Reload said", 1, 0, 2)
	reload("still bad", ":1: ", 2)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	reload("removed", "the last good content stays in force", 2)
	w.look("removed, as Reload said", 1, 0, 2)
	w.write(alice)
	reload("back", "", 1)
	w.look("back", 2, 0, 1)
	w.write(bob)
	reload("good", "", 1)
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	w.look("good before it was removed", 3, 1, 1)
	if err := new(File[*AuthorizedClients]).Reload(); err == nil {
		t.Error("Reload of the zero File succeeded")
	}
}

func TestReloadIsSafeBesideRun(t *testing.T) {
	t.Parallel()
	w := newWatched(t, "")
	ctx, cancel := context.WithCancel(t.Context())
	changed := make(chan struct{}, 100)
	var group sync.WaitGroup
	group.Go(func() { w.Run(ctx, func(*AuthorizedClients) { changed <- struct{}{} }, nil) })
	for i := range 10 {
		if err := AddAuthorizedClient(w.path, fixedKey(t, Client, byte(i)), ""); err != nil {
			t.Fatal(err)
		}
		if err := w.Reload(); err != nil || len(w.Current().All()) != i+1 {
			t.Errorf("Reload = %v, %d clients in force, want %d", err, len(w.Current().All()), i+1)
		}
	}
	<-changed
	cancel()
	group.Wait()
}

func TestOptionalFileMayAppearLater(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authorized_clients")
	file, err := WatchOptionalFile(path, ParseAuthorizedClients)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, File: file}
	w.look("missing", 0, 0, 0)
	if err := w.Reload(); err != nil {
		t.Errorf("Reload of a file that was never there: %v", err)
	}
	w.write(fixedKey(t, Client, 1).String())
	w.look("there", 1, 0, 1)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.look("removed", 1, 1, 1)
	if err := w.Reload(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Reload of a removed file: %v, want fs.ErrNotExist", err)
	}

	// An empty one was there as well.
	path = filepath.Join(t.TempDir(), "authorized_clients")
	if file, err = WatchOptionalFile(path, ParseAuthorizedClients); err != nil {
		t.Fatal(err)
	}
	w = &watched{t: t, File: file}
	w.write("")
	w.look("there and empty", 0, 0, 0)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	w.look("removed", 0, 1, 0)

	w.write("restricted x")
	if _, err := WatchOptionalFile(path, ParseAuthorizedClients); err == nil {
		t.Error("WatchOptionalFile of a bad file succeeded")
	}
	if _, err := WatchOptionalFile(filepath.Dir(path), ParseAuthorizedClients); err == nil {
		t.Error("WatchOptionalFile of a folder succeeded")
	}
	if file, err := WatchFile(path+"x", ParseAuthorizedClients); err == nil || file != nil {
		t.Error("WatchFile of a missing file succeeded")
	}
}
