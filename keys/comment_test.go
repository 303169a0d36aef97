package keys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Whoever writes one of these means a limit; as a name it would be none.
var meantAsOptions = []string{
	"alice sandbox <=read-only", `alice "restrict"`, "alice Restrict", `alice command ="/x"`, `alice from="1"`, "alice no-pty",
	"alice; expires 2026-01-01", "alice RESTRICT;", "alice pty,", "alice;restrict", "alice No-Pty", "alice no-port-forwarding",
	"alice X11-forwarding", "max-time 10m", "alice <", "alice >", "=", `alice \"`, "network none",
}

func TestWordsAfterTheKeyThatMayBeMeantAsOptionsRefuseTheLine(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for _, comment := range meantAsOptions {
		clients, err := ParseAuthorizedClients("f", strings.NewReader(key.String()+" "+comment))
		if err == nil || clients != nil || !strings.HasPrefix(err.Error(), "f:1: ") ||
			!strings.Contains(err.Error(), "stands after the key") || !strings.Contains(err.Error(), "options stand before the key") {
			t.Errorf("%q: %v", comment, err)
		}
	}
	for _, name := range []string{"alice", "alice@example.org", "Alice B. on her-laptop.local", "ci-1", "restricted area", "a_b", "no", "(alice)"} {
		if clients, err := ParseAuthorizedClients("f", strings.NewReader(key.String()+" "+name)); err != nil || clients.All()[0].Name != name {
			t.Errorf("the name %q: %v", name, err)
		}
	}
}

func TestNameThatMayBeMeantAsAnOptionIsNotAdded(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	path := filepath.Join(t.TempDir(), "authorized_clients")
	for _, name := range meantAsOptions {
		if err := AddAuthorizedClient(path, key, name); err == nil || !strings.Contains(err.Error(), "options stand before the key") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("there is a file afterwards")
	}
}

// The error must not repeat what may be a secret.
func TestErrorOfAnOptionAfterTheKeyRepeatsNoValue(t *testing.T) {
	t.Parallel()
	_, err := ParseAuthorizedClients("f", strings.NewReader(fixedKey(t, Client, 1).String()+` alice environment="TOKEN=hush"`))
	if err == nil || strings.Contains(err.Error(), "hush") {
		t.Errorf("got %v", err)
	}
}

func TestNoSpellingOfAnOptionPassesAsAName(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	var names []string
	for name := range clientOptions {
		names = append(names, name)
	}
	rapid.Check(t, func(t *rapid.T) {
		word := []byte(rapid.SampledFrom(names).Draw(t, "option"))
		for i, upper := range rapid.SliceOfN(rapid.Bool(), len(word), len(word)).Draw(t, "upper") {
			if upper {
				word[i] = strings.ToUpper(string(word[i]))[0]
			}
		}
		before := rapid.SampledFrom([]string{"", "alice ", "alice, ", "alice;", "a\t"}).Draw(t, "before")
		after := rapid.SampledFrom([]string{"", " alice", ";", ",", ", x", "=", `="y"`, " <=z"}).Draw(t, "after")
		if _, err := ParseAuthorizedClients("f", strings.NewReader(key.String()+" "+before+string(word)+after)); err == nil {
			t.Fatalf("%q passes as a name", before+string(word)+after)
		}
	})
}
