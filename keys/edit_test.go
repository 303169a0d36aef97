package keys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// writeText makes a file of the mode.
func writeText(t testing.TB, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

func TestEditingTenantsKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tenants")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	alice, builder := Member{Key: fixedKey(t, Client, 1), Name: "alice"}, Member{Key: fixedKey(t, Executor, 1), Name: "builder", Tenant: "acme", Since: time.Unix(9, 9)}
	limits := TenantLimits{Connections: 7}
	must(AddTenant(path, Tenant{Name: "acme", Limits: limits, Line: 99}))
	wantMode(t, path, 0o600)
	writeText(t, path, "# by hand\r\n\n tenant\tacme  conns=7 \r\n# inside\n\n# about the next\ntenant other\n# last", 0o640)
	for range 2 { // the same again changes nothing
		must(AddMember(path, "acme", alice))
		must(AddMember(path, "other", Member{Key: fixedKey(t, Client, 2), Name: "alice"}))
		must(AddMember(path, "acme", builder))
		must(AddTenant(path, Tenant{Name: "acme", Limits: limits}))
		must(AddTenant(path, Tenant{Name: "third"}))
	}
	wantOther := "tenant other\nclient " + fixedKey(t, Client, 2).String() + " alice\n# last\n"
	want := "# by hand\r\n\n tenant\tacme  conns=7 \r\nclient " + alice.Key.String() + " alice\nexec " + builder.Key.String() +
		" builder since=9\n# inside\n\n# about the next\n" + wantOther + "tenant third\n"
	if got := readText(t, path); got != want {
		t.Errorf("file holds\n%swant\n%s", got, want)
	}
	wantMode(t, path, 0o640)

	for name, err := range map[string]error{
		"tenant, other limits":     AddTenant(path, Tenant{Name: "acme"}),
		"tenant of two lines":      AddTenant(path, Tenant{Name: "x\nclient " + alice.Key.String() + " b"}),
		"tenant with an option":    AddTenant(path, Tenant{Name: "x conns=3"}),
		"tenant without name":      AddTenant(path, Tenant{}),
		"tenant, limit below zero": AddTenant(path, Tenant{Name: "x", Limits: TenantLimits{Circuits: -1}}),
		"member, other name":       AddMember(path, "acme", Member{Key: alice.Key, Name: "bob"}),
		"member, other tenant":     AddMember(path, "other", Member{Key: alice.Key, Name: "bob"}),
		"member, two tenants":      AddMember(path, "other", Member{Key: fixedKey(t, Client, 5), Name: "bob", Tenant: "acme"}),
		"member, name taken":       AddMember(path, "acme", Member{Key: fixedKey(t, Client, 5), Name: "alice"}),
		"member of two lines":      AddMember(path, "acme", Member{Key: fixedKey(t, Client, 5), Name: "x\n#"}),
		"member without key":       AddMember(path, "acme", Member{Name: "x"}),
		"relay as a member":        AddMember(path, "acme", Member{Key: testRelay(t).Key, Name: "x"}),
		"client with a token":      AddMember(path, "acme", Member{Key: fixedKey(t, Client, 5), Name: "x", Token: TokenID{1}}),
		"member, no tenant":        AddMember(path, "", Member{Key: fixedKey(t, Client, 5), Name: "x"}),
	} {
		if err == nil || errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want an error", name, err)
		}
	}
	for name, err := range map[string]error{
		"member, unknown tenant": AddMember(path, "nobody", Member{Key: fixedKey(t, Client, 5), Name: "x"}),
		"remove a stranger":      RemoveMember(path, fixedKey(t, Client, 5)),
		"remove no key":          RemoveMember(path, PublicKey{}),
		"remove a tenant":        RemoveTenant(path, "nobody"),
		"remove no tenant":       RemoveTenant(path, ""),
		"no file":                RemoveTenant(path+"x", "acme"),
		"no file for a member":   RemoveMember(path+"x", alice.Key),
	} {
		if !errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want ErrNotListed", name, err)
		}
	}
	if got := readText(t, path); got != want {
		t.Errorf("refused edits left\n%swant\n%s", got, want)
	}

	must(RemoveMember(path, alice.Key))
	if got := readText(t, path); got != strings.Replace(want, "client "+alice.Key.String()+" alice\n", "", 1) {
		t.Errorf("without alice the file holds\n%s", got)
	}
	must(RemoveTenant(path, "acme"))
	if got := readText(t, path); got != "# by hand\r\n\n# about the next\n"+wantOther+"tenant third\n" {
		t.Errorf("without acme the file holds\n%s", got)
	}
	must(RemoveTenant(path, "third"))
	must(RemoveTenant(path, "other"))
	if got := readText(t, path); got != "# by hand\r\n\n# about the next\n" {
		t.Errorf("without tenants the file holds\n%s", got)
	}
	wantMode(t, path, 0o640)
	if names := entries(t, filepath.Dir(path)); len(names) != 1 {
		t.Errorf("folder holds %q, want one file", names)
	}
}

func TestEditingRefusesToTouchABrokenFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "list")
	const broken = "restrict x\n"
	writeText(t, path, broken, 0o600)
	key := fixedKey(t, Executor, 1)
	known := KnownExecutor{"b", key, testRelay(t)}
	_, err := ReplaceKnownKey(path, key, fixedKey(t, Executor, 2))
	for name, err := range map[string]error{
		"AddTenant":            AddTenant(path, Tenant{Name: "a"}),
		"AddMember":            AddMember(path, "a", Member{Key: key, Name: "b"}),
		"RemoveTenant":         RemoveTenant(path, "a"),
		"RemoveMember":         RemoveMember(path, key),
		"RewriteTenants":       RewriteTenants(path, func(*TenantsEdit) error { panic("called") }),
		"RemoveKnownExecutor":  RemoveKnownExecutor(path, "b"),
		"ReplaceKnownExecutor": ReplaceKnownExecutor(path, known, known),
		"ReplaceKnownKey":      err,
	} {
		if err == nil || !strings.Contains(err.Error(), path+":1: ") {
			t.Errorf("%s on a broken file: %v, want an error with its line", name, err)
		}
	}
	if got := readText(t, path); got != broken {
		t.Errorf("file changed to %q", got)
	}
}

func TestRewriteTenantsIsOneStep(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "enrolled")
	if err := RewriteTenants(path, func(*TenantsEdit) error { return nil }); err != nil || readText(t, path) != "" {
		t.Fatalf("a missing file: %v", err)
	}
	wantMode(t, path, 0o600)
	one, two := Member{Key: fixedKey(t, Executor, 1), Name: "one"}, Member{Key: fixedKey(t, Executor, 2), Name: "two"}
	join := Join{ID: TokenID{1}, Hash: [32]byte{2}, Pattern: "*", Uses: 3, Expires: time.Unix(1800000000, 5)}
	edit := func(change func(e *TenantsEdit) error) {
		t.Helper()
		if err := RewriteTenants(path, change); err != nil {
			t.Fatal(err)
		}
	}
	edit(func(e *TenantsEdit) error {
		return errors.Join(e.SetMember("a", one), e.SetMember("b", two), e.SetJoin("a", join))
	})
	join.Used++
	one.Since = time.Unix(7, 0)
	edit(func(e *TenantsEdit) error {
		if got, ok := e.Before().Join(join.ID); !ok || got.Used != 0 || got.Tenant != "a" {
			t.Errorf("before the edit: %+v, %v", got, ok)
		}
		return errors.Join(e.SetJoin("a", join), e.SetMember("a", one), e.SetMember("a", two)) // two moves
	})
	want := "tenant a\nexec " + one.Key.String() + " one since=7\njoin " + join.ID.String() + " sha256:02" + strings.Repeat("0", 62) +
		" name=* uses=3 used=1 expires=2027-01-15T08:00:00Z\nexec " + two.Key.String() + " two\ntenant b\n"
	if got := readText(t, path); got != want {
		t.Errorf("file holds\n%swant\n%s", got, want)
	}
	stop := errors.New("stop")
	for name, change := range map[string]func(e *TenantsEdit) error{
		"given up": func(e *TenantsEdit) error { e.RemoveTenant("a"); return stop },
		"name taken": func(e *TenantsEdit) error {
			return e.SetMember("a", Member{Key: fixedKey(t, Executor, 9), Name: "one"})
		},
		"bad name": func(e *TenantsEdit) error {
			return e.SetMember("a", Member{Key: fixedKey(t, Executor, 9), Name: "x y"})
		},
		"bad tenant":   func(e *TenantsEdit) error { return e.SetMember("a conns=1", one) },
		"other tenant": func(e *TenantsEdit) error { return e.SetJoin("b", Join{Tenant: "a", ID: TokenID{9}}) },
		"join without uses": func(e *TenantsEdit) error {
			return e.SetJoin("a", Join{ID: TokenID{9}, Pattern: "*", Expires: join.Expires})
		},
		"join of no id":    func(e *TenantsEdit) error { return e.SetJoin("a", Join{Pattern: "*", Uses: 1, Expires: join.Expires}) },
		"join without end": func(e *TenantsEdit) error { return e.SetJoin("a", Join{ID: TokenID{9}, Pattern: "*", Uses: 1}) },
	} {
		if err := RewriteTenants(path, change); err == nil || name == "given up" && !errors.Is(err, stop) {
			t.Errorf("%s: %v, want an error", name, err)
		}
		if got := readText(t, path); got != want {
			t.Fatalf("%s: file holds\n%s", name, got)
		}
	}
	edit(func(e *TenantsEdit) error {
		if !e.RemoveMember(one.Key) || !e.RemoveJoin(join.ID) || !e.RemoveTenant("b") {
			t.Error("what is there was not found")
		}
		if e.RemoveMember(one.Key) || e.RemoveJoin(join.ID) || e.RemoveTenant("b") || e.RemoveMember(PublicKey{}) || e.RemoveJoin(TokenID{}) || e.RemoveTenant("") {
			t.Error("what is not there was found")
		}
		return nil
	})
	if got := readText(t, path); got != "tenant a\nexec "+two.Key.String()+" two\n" {
		t.Errorf("file holds\n%s", got)
	}
}

func TestConcurrentEditsOfTenantsLoseNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "enrolled")
	const editors = 20
	join := Join{ID: TokenID{1}, Pattern: "*", Uses: editors, Expires: time.Unix(1800000000, 0)}
	if err := RewriteTenants(path, func(e *TenantsEdit) error { return e.SetJoin("a", join) }); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range editors {
		group.Go(func() {
			err := RewriteTenants(path, func(e *TenantsEdit) error {
				counted, _ := e.Before().Join(join.ID)
				counted.Used++
				return errors.Join(e.SetJoin("a", counted), e.SetMember("a", Member{Key: fixedKey(t, Executor, byte(i)), Name: fmt.Sprint("e", i)}))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	tenants := tenantsOf(t, readText(t, path))
	if got, _ := tenants.Join(join.ID); got.Used != editors || len(tenants.Members("a")) != editors {
		t.Errorf("%d uses counted, %d members, want %d", got.Used, len(tenants.Members("a")), editors)
	}
}

// TestEditsKeepEveryOtherLine: whatever the list, an edit adds, replaces or removes its own line and keeps all others byte for
// byte, in their order.
func TestEditsKeepEveryOtherLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(r *rapid.T) {
		path := filepath.Join(dir, "list")
		var lines []string
		for i := range rapid.IntRange(1, 4).Draw(r, "tenants") {
			lines = append(lines, fmt.Sprintf("tenant t%d", i))
			for j := range rapid.IntRange(0, 6).Draw(r, "lines") {
				n := byte(i*10 + j)
				lines = append(lines, rapid.SampledFrom([]string{
					"", " \t", "# comment", "\t# tenant t0",
					fmt.Sprintf("client %s n%d", fixedKey(t, Client, n), n),
					fmt.Sprintf(" exec\t%s   n%d since=4 token=%s ", fixedKey(t, Executor, n), n, tokenText),
					fmt.Sprintf("join %s  sha256:%s expires=2026-12-01T00:00:00Z", TokenID{n + 1}, hex64),
				}).Draw(r, "line"))
			}
		}
		for i := range lines {
			lines[i] += rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(r, "end")
		}
		before := strings.Join(lines, "")
		if rapid.Bool().Draw(r, "no last line end") {
			before = strings.TrimRight(before, "\r\n")
		}
		writeText(t, path, before, 0o600)
		member := Member{
			Key:  fixedKey(t, rapid.SampledFrom([]Kind{Client, Executor}).Draw(r, "kind"), byte(rapid.IntRange(0, 35).Draw(r, "key"))),
			Name: "added", Tenant: fmt.Sprintf("t%d", rapid.IntRange(0, 4).Draw(r, "tenant")),
		}
		var err error
		switch rapid.IntRange(0, 2).Draw(r, "edit") {
		case 0:
			err = AddMember(path, member.Tenant, member)
		case 1:
			err = RemoveMember(path, member.Key)
		case 2:
			err = RewriteTenants(path, func(e *TenantsEdit) error { return e.SetMember(member.Tenant, member) })
		}
		after := readText(t, path)
		if err != nil {
			if after != before {
				r.Fatalf("%v, and the file changed to\n%s", err, after)
			}
			return
		}
		var others []string // neither the member's line nor the section that was opened for it
		for line := range strings.Lines(after) {
			opened := line == "tenant "+member.Tenant+"\n" && !strings.Contains(before, "tenant "+member.Tenant)
			if !strings.Contains(line, member.Key.String()) && !opened {
				others = append(others, line)
			}
		}
		var want []string
		for line := range strings.Lines(before) {
			if !strings.Contains(line, member.Key.String()) {
				want = append(want, line)
			}
		}
		if got := strings.Join(others, ""); got != strings.Join(want, "") && got != strings.Join(want, "")+"\n" {
			r.Fatalf("other lines are\n%swant\n%s", got, strings.Join(want, ""))
		}
	})
}

func TestKnownExecutorsAreRemovedAndReplaced(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "known_executors")
	old, next, other, relay := fixedKey(t, Executor, 1), fixedKey(t, Executor, 2), fixedKey(t, Executor, 3), testRelay(t)
	moved := relay
	moved.Key = fixedKey(t, Relay, 8)
	lines := func(lines ...string) string { return "# mine\r\n" + strings.Join(lines, "") }
	a, b, c := fmt.Sprintf("a  %s\t%s\r\n", old, relay), fmt.Sprintf("b %s %s\n", other, relay), fmt.Sprintf("c %s %s", old, relay)
	wantFile := func(what, want string) {
		t.Helper()
		if got := readText(t, path); got != want {
			t.Errorf("%s: file holds\n%s\nwant\n%s", what, got, want)
		}
	}
	writeText(t, path, lines(a, b, c), 0o640)

	asOther := KnownExecutor{"a", other, relay}
	for name, err := range map[string]error{
		"remove an alias":       RemoveKnownExecutor(path, "x"),
		"remove without a file": RemoveKnownExecutor(path+"x", "a"),
		"replace, other key":    ReplaceKnownExecutor(path, asOther, KnownExecutor{"a", next, relay}),
		"replace, other relay":  ReplaceKnownExecutor(path, KnownExecutor{"a", old, moved}, KnownExecutor{"a", next, relay}),
		"replace, other alias":  ReplaceKnownExecutor(path, KnownExecutor{"x", old, relay}, KnownExecutor{"a", next, relay}),
	} {
		if !errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want ErrNotListed", name, err)
		}
	}
	for name, err := range map[string]error{
		"alias taken": ReplaceKnownExecutor(path, KnownExecutor{"a", old, relay}, KnownExecutor{"b", old, relay}),
		"bad alias":   ReplaceKnownExecutor(path, KnownExecutor{"a", old, relay}, KnownExecutor{"a b", old, relay}),
		"no key":      ReplaceKnownExecutor(path, KnownExecutor{"a", old, relay}, KnownExecutor{"a", PublicKey{}, relay}),
	} {
		if err == nil || errors.Is(err, ErrNotListed) {
			t.Errorf("%s: %v, want another error", name, err)
		}
	}
	wantFile("after refused edits", lines(a, b, c))

	if n, err := ReplaceKnownKey(path, old, next); n != 2 || err != nil {
		t.Errorf("ReplaceKnownKey = %d, %v, want 2", n, err)
	}
	a, c = fmt.Sprintf("a %s %s\r\n", next, relay), fmt.Sprintf("c %s %s", next, relay)
	wantFile("executor's key replaced", lines(a, b, c))
	if n, err := ReplaceKnownKey(path, old, next); n != 0 || err != nil {
		t.Errorf("ReplaceKnownKey again = %d, %v, want 0", n, err)
	}
	if n, err := ReplaceKnownKey(path, relay.Key, moved.Key); n != 3 || err != nil {
		t.Errorf("ReplaceKnownKey of the relay = %d, %v, want 3", n, err)
	}
	wantFile("relay's key replaced", strings.ReplaceAll(lines(a, b, c), relay.String(), moved.String()))
	for name, pair := range map[string][2]PublicKey{
		"kinds differ": {next, moved.Key}, "clients": {fixedKey(t, Client, 1), fixedKey(t, Client, 2)},
		"no keys": {}, "no new key": {next, PublicKey{}},
	} {
		if n, err := ReplaceKnownKey(path, pair[0], pair[1]); n != 0 || err == nil {
			t.Errorf("%s: ReplaceKnownKey = %d, %v, want an error", name, n, err)
		}
	}
	if err := ReplaceKnownExecutor(path, KnownExecutor{"b", other, moved}, KnownExecutor{"d", old, relay}); err != nil {
		t.Error(err)
	}
	if err := RemoveKnownExecutor(path, "a"); err != nil {
		t.Error(err)
	}
	wantFile("one replaced, one removed", lines(fmt.Sprintf("d %s %s\n", old, relay), fmt.Sprintf("c %s %s", next, moved)))
	wantMode(t, path, 0o640)
	if n, err := ReplaceKnownKey(path+"x", old, next); n != 0 || err != nil || len(entries(t, filepath.Dir(path))) != 1 {
		t.Errorf("ReplaceKnownKey without a file = %d, %v", n, err)
	}
}
