package keys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// entries returns the names in dir.
func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

// wantMode checks the mode of a file, where files have one.
func wantMode(t *testing.T, path string, want fs.FileMode) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); modesMatter && got != want {
		t.Errorf("%s has mode %04o, want %04o", path, got, want)
	}
}

func TestKeyFileRoundTripsAndIsNeverOverwritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	k := generate(t, Executor)
	if err := WriteFile(path, k); err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
	got, err := ReadFile(path, Executor)
	if err != nil || got.Public() != k.Public() {
		t.Fatalf("ReadFile = %v, %v, want %v", got, err, k.Public())
	}
	if err := WriteFile(path, generate(t, Executor)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second WriteFile: %v, want fs.ErrExist", err)
	}
	if got, err := ReadFile(path, Executor); err != nil || got.Public() != k.Public() {
		t.Errorf("after the second WriteFile the file holds %v, %v, want the first key", got, err)
	}
	if names := entries(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("folder holds %q, want the key alone", names)
	}
}

func TestUnsafeKeyFilesAreRefused(t *testing.T) {
	t.Parallel()
	secret := generate(t, Client).Secret()
	for name, test := range map[string]struct {
		content string
		mode    fs.FileMode
		want    string
	}{
		"readable by group":  {secret, 0o640, "chmod 600"},
		"readable by others": {secret, 0o604, "mode 0604"},
		"writable by group":  {secret, 0o620, "mode 0620"},
		"another kind":       {generate(t, Relay).Secret(), 0o600, "a relay's key"},
		"public key":         {fixedKey(t, Client, 1).String(), 0o600, "public key"},
		"empty":              {"", 0o600, "no key"},
		"comment only":       {"# key\n", 0o600, "no key"},
		"two keys":           {secret + "\n" + secret, 0o600, "more than one line"},
		"cut short":          {secret[:40], 0o600, "characters"},
		"endless":            {secret + strings.Repeat("\n", maxKeyFile), 0o600, "larger than"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.mode != 0o600 && !modesMatter {
				t.Skip("files have no mode on this system")
			}
			path := filepath.Join(t.TempDir(), "key")
			if err := os.WriteFile(path, []byte(test.content), test.mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, test.mode); err != nil {
				t.Fatal(err)
			}
			k, err := ReadFile(path, Client)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), path) {
				t.Fatalf("ReadFile = %v, %v, want an error that names the file and says %q", k, err, test.want)
			}
			if strings.Contains(err.Error(), secret[13:25]) {
				t.Errorf("error repeats the secret: %v", err)
			}
		})
	}
	dir := t.TempDir()
	if _, err := ReadFile(dir, Client); err == nil {
		t.Error("ReadFile of a folder succeeded")
	}
	if _, err := ReadFile(filepath.Join(dir, "missing"), Client); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("ReadFile of a missing file: %v, want fs.ErrNotExist", err)
	}
}

func TestLoadOrGenerateReturnsOneKeyToAll(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	const callers = 16
	var group sync.WaitGroup
	var found [callers]PublicKey
	var created [callers]bool
	for i := range callers {
		group.Go(func() {
			k, isNew, err := LoadOrGenerate(path, Relay)
			if err != nil {
				t.Errorf("LoadOrGenerate: %v", err)
				return
			}
			found[i], created[i] = k.Public(), isNew
		})
	}
	group.Wait()
	count := 0
	for i := range callers {
		if found[i] != found[0] {
			t.Errorf("callers got %v and %v, want one key", found[0], found[i])
		}
		if created[i] {
			count++
		}
	}
	if count != 1 {
		t.Errorf("%d callers created the key, want 1", count)
	}
	if names := entries(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("folder holds %q, want the key alone", names)
	}
	if k, _, err := LoadOrGenerate(path, Client); err == nil {
		t.Errorf("LoadOrGenerate of another kind = %v, want an error", k)
	}
	if _, _, err := LoadOrGenerate(filepath.Join(t.TempDir(), "no", "folder"), Client); err == nil {
		t.Error("LoadOrGenerate in a missing folder succeeded")
	}
}

func TestFailedWriteLeavesNoFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	full := errors.New("no space left on device")
	_, err := writeTemp(filepath.Join(dir, "key"), func(file *os.File) error {
		if _, err := fmt.Fprint(file, "half of a k"); err != nil {
			return err
		}
		return full
	})
	if !errors.Is(err, full) {
		t.Errorf("writeTemp: %v, want %v", err, full)
	}
	if names := entries(t, dir); len(names) != 0 {
		t.Errorf("folder holds %q, want nothing", names)
	}
}

// TestDirectCreationIsExclusive covers the file systems without hard links.
func TestDirectCreationIsExclusive(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := createDirectly(path, []byte("first")); err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
	if err := createDirectly(path, []byte("second")); !errors.Is(err, fs.ErrExist) {
		t.Errorf("second creation: %v, want fs.ErrExist", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "first" {
		t.Errorf("file holds %q, %v, want the first content", content, err)
	}
}
