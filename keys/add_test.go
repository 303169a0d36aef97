package keys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// readText returns the content of a file.
func readText(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestAddKnownExecutorKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "known_executors")
	first := KnownExecutor{"builder", fixedKey(t, Executor, 1), testRelay(t)}
	second := KnownExecutor{"tester", fixedKey(t, Executor, 2), testRelay(t)}
	if err := AddKnownExecutor(path, first); err != nil {
		t.Fatal(err)
	}
	wantMode(t, path, 0o600)
	commented := "# by hand\n\n" + strings.TrimSuffix(readText(t, path), "\n") // and no line end
	if err := os.WriteFile(path, []byte(commented), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the same line again changes nothing
		if err := AddKnownExecutor(path, second); err != nil {
			t.Fatal(err)
		}
	}
	want := commented + "\ntester " + second.Key.String() + " " + second.Relay.String() + "\n"
	if got := readText(t, path); got != want {
		t.Errorf("file holds\n%swant\n%s", got, want)
	}
	wantMode(t, path, 0o640)

	otherRelay := second.Relay
	otherRelay.Port++
	for name, e := range map[string]KnownExecutor{
		"another key":       {"tester", fixedKey(t, Executor, 3), second.Relay},
		"another relay":     {"tester", second.Key, otherRelay},
		"a line of its own": {"x\nevil", fixedKey(t, Executor, 3), second.Relay},
		"a comment":         {"#x", fixedKey(t, Executor, 3), second.Relay},
		"no alias":          {"", fixedKey(t, Executor, 3), second.Relay},
		"client's key":      {"x", fixedKey(t, Client, 3), second.Relay},
		"no key":            {"x", PublicKey{}, second.Relay},
		"no relay":          {"x", fixedKey(t, Executor, 3), RelayURL{}},
		"host with a space": {"x", fixedKey(t, Executor, 3), RelayURL{"a b", 1, second.Relay.Key}},
		"host in capitals":  {"x", fixedKey(t, Executor, 3), RelayURL{"A", 1, second.Relay.Key}},
	} {
		if err := AddKnownExecutor(path, e); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if got := readText(t, path); got != want {
			t.Fatalf("%s: file changed to\n%s", name, got)
		}
	}
	if names := entries(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("folder holds %q, want one file", names)
	}
}

func TestAddRefusesToTouchABrokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "list")
	const broken = "restrict client_x\n"
	if err := os.WriteFile(path, []byte(broken), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"AddKnownExecutor":    AddKnownExecutor(path, KnownExecutor{"b", fixedKey(t, Executor, 1), testRelay(t)}),
		"AddMember":           AddMember(path, "t", Member{Key: fixedKey(t, Client, 1), Name: "a"}),
		"AddAuthorizedClient": AddAuthorizedClient(path, fixedKey(t, Client, 1), "a"),
	} {
		if err == nil || !strings.Contains(err.Error(), path+":1: ") {
			t.Errorf("%s on a broken file: %v, want an error with its line", name, err)
		}
	}
	if got := readText(t, path); got != broken {
		t.Errorf("file changed to %q", got)
	}
}

func TestAddFollowsASymbolicLink(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Skipf("symbolic links are not available: %v", err)
	}
	if err := AddAuthorizedClient(link, fixedKey(t, Client, 1), "alice"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", info, err)
	}
	if !strings.Contains(readText(t, target), "alice") {
		t.Error("the target did not get the line")
	}
}

func TestAddClients(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	clients := filepath.Join(dir, "authorized_clients")
	one, two := fixedKey(t, Client, 1), fixedKey(t, Client, 2)
	for name, step := range map[string]struct {
		add     func() error
		wantErr bool
	}{
		"client of two lines":      {func() error { return AddAuthorizedClient(clients, two, "x\n"+one.String()) }, true},
		"client with outer spaces": {func() error { return AddAuthorizedClient(clients, two, " x ") }, true},
		"client, another kind":     {func() error { return AddAuthorizedClient(clients, testRelay(t).Key, "x") }, true},
		"no client":                {func() error { return AddAuthorizedClient(clients, PublicKey{}, "x") }, true},
		"client":                   {func() error { return AddAuthorizedClient(clients, one, "alice at work") }, false},
	} {
		for range 2 {
			if err := step.add(); (err != nil) != step.wantErr {
				t.Errorf("%s: error %v, want an error: %v", name, err, step.wantErr)
			}
		}
	}
	if err := AddAuthorizedClient(clients, one, "bob"); err == nil {
		t.Error("a listed client got another name")
	}
	if got, want := readText(t, clients), one.String()+" alice at work\n"; got != want {
		t.Errorf("authorized_clients holds %q, want %q", got, want)
	}
}

func TestConcurrentAddsLoseNoLine(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "authorized_clients")
	const adders = 20
	var group sync.WaitGroup
	for i := range adders {
		group.Go(func() {
			if err := AddAuthorizedClient(path, fixedKey(t, Client, byte(i)), fmt.Sprint("client-", i)); err != nil {
				t.Errorf("AddAuthorizedClient: %v", err)
			}
		})
	}
	group.Wait()
	clients, err := ParseAuthorizedClients(path, strings.NewReader(readText(t, path)))
	if err != nil || len(clients.All()) != adders {
		t.Errorf("file holds %d clients, %v, want %d", len(clients.All()), err, adders)
	}
}
