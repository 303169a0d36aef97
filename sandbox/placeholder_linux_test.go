package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func hold(t *testing.T, root, name string) *placeholder {
	t.Helper()
	fd, err := openHost(root)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		t.Fatal(err)
	}
	h, err := holdPlace(fd, &st, name)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func TestPlaceholderGoesWithItsLastUse(t *testing.T) {
	ws := workspace(t)
	a, b := hold(t, ws, ".git"), hold(t, ws, ".git")
	a.release()
	a.release() // once is enough
	if !fileExists(filepath.Join(ws, ".git")) {
		t.Error("removed while in use")
	}
	b.release()
	if fileExists(filepath.Join(ws, ".git")) {
		t.Error("left behind")
	}
}

func TestOnlyOwnEmptyPlaceholdersAreRemoved(t *testing.T) {
	ws := workspace(t)
	path := func(name string) string { return filepath.Join(ws, name) }
	if err := os.Mkdir(path("empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(path("full/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path("file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("empty", path("link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"full", "file", "link"} {
		if h := hold(t, ws, name); h != nil {
			t.Errorf("%s is held as if it were a placeholder", name)
		}
	}
	hold(t, ws, "empty").release()
	filled := hold(t, ws, "filled")
	if err := os.WriteFile(path("filled/f"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	filled.release()
	replaced := hold(t, ws, "replaced")
	if err := os.Rename(path("replaced"), path("moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path("replaced"), 0o755); err != nil {
		t.Fatal(err)
	}
	replaced.release()
	for _, name := range []string{"empty", "full", "file", "link", "filled", "replaced", "moved"} {
		if !fileExists(path(name)) {
			t.Errorf("%s was removed", name)
		}
	}
}

func TestPlaceholderOfAnotherDaemonStays(t *testing.T) {
	ws := workspace(t)
	h := hold(t, ws, ".git")
	other, err := os.Open(filepath.Join(ws, ".git")) // as another process would hold it
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := unix.Flock(int(other.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	h.release()
	if !fileExists(filepath.Join(ws, ".git")) {
		t.Error("removed although another daemon holds it")
	}
}
