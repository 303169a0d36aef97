package keys

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	tokenText = "000102030405060708090a0b0c0d0e0f"
	hex64     = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
)

// samePublicKeys lets cmp look into keys.
var samePublicKeys = cmp.AllowUnexported(PublicKey{})

// tenantsOf parses a list that is good.
func tenantsOf(t testing.TB, lines ...string) *Tenants {
	t.Helper()
	tenants, err := ParseTenants("file", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return tenants
}

// writeTenants writes a list anew, section by section.
func writeTenants(t *Tenants) string {
	var text strings.Builder
	for _, tenant := range t.All() {
		fmt.Fprintln(&text, tenant.line())
		for _, member := range t.Members(tenant.Name) {
			fmt.Fprintln(&text, member.line())
		}
		for _, join := range t.Joins(tenant.Name) {
			fmt.Fprintln(&text, join.line())
		}
	}
	return text.String()
}

func TestTenantsMembersAndTokensAreFound(t *testing.T) {
	t.Parallel()
	alice, one, two, three := fixedKey(t, Client, 1), fixedKey(t, Executor, 1), fixedKey(t, Executor, 2), fixedKey(t, Executor, 3)
	id, err := ParseTokenID(tokenText)
	if err != nil {
		t.Fatal(err)
	}
	var hash [32]byte
	if err := decodeHex(hash[:], hex64); err != nil {
		t.Fatal(err)
	}
	tenants := tenantsOf(t,
		"# the relay's list", "tenant acme conns=200 execs=50 circuits=400",
		fmt.Sprintf("client %s builder", alice),
		fmt.Sprintf("exec %s builder", one),
		fmt.Sprintf("exec\t%s builder since=1800000000 follows=%s mac=%s token=%s\r", two, one, hex64, tokenText),
		fmt.Sprintf("join %s sha256:%s used=3 uses=20 by=%s expires=2026-12-01T00:00:00Z name=builder-*", tokenText, hex64, alice),
		"join 10"+tokenText[2:]+" sha256:"+hex64+" expires=2027-01-01T00:00:00Z",
		"", "tenant other", fmt.Sprintf("exec %s builder", three))

	wantTenants := []Tenant{{"acme", TenantLimits{Connections: 200, Executors: 50, Circuits: 400}, 2}, {"other", TenantLimits{}, 9}}
	if diff := cmp.Diff(wantTenants, tenants.All()); diff != "" {
		t.Errorf("All() (-want +got):\n%s", diff)
	}
	wantMembers := []Member{
		{Key: alice, Name: "builder", Tenant: "acme", Line: 3},
		{Key: one, Name: "builder", Tenant: "acme", Line: 4},
		{Key: two, Name: "builder", Tenant: "acme", Token: id, MAC: hash, Follows: one, Since: time.Unix(1800000000, 0).UTC(), Line: 5},
	}
	if diff := cmp.Diff(wantMembers, tenants.Members("acme"), samePublicKeys); diff != "" {
		t.Errorf("Members (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(wantMembers[1:], tenants.Named("acme", Executor, "builder"), samePublicKeys); diff != "" {
		t.Errorf("Named (-want +got):\n%s", diff)
	}
	wantJoin := Join{
		ID: id, Tenant: "acme", Hash: hash, Pattern: "builder-*", Uses: 20, Used: 3,
		Expires: time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC), By: alice, Line: 6,
	}
	if got, ok := tenants.Join(id); !ok || got != wantJoin {
		t.Errorf("Join = %+v, %v, want %+v", got, ok, wantJoin)
	}
	if joins := tenants.Joins("acme"); len(joins) != 2 || joins[1].Pattern != "*" || joins[1].Uses != 1 || joins[1].Used != 0 {
		t.Errorf("Joins = %+v, want a second one for one use with any name", joins)
	}
	if got, ok := tenants.Lookup(three); !ok || got.Tenant != "other" {
		t.Errorf("Lookup(three) = %+v, %v, want the member of other", got, ok)
	}
	for _, stranger := range []PublicKey{fixedKey(t, Client, 2), fixedKey(t, Executor, 9), {}} {
		if got, ok := tenants.Lookup(stranger); ok {
			t.Errorf("Lookup of a stranger = %+v", got)
		}
	}
	if got := tenants.Named("other", Client, "builder"); got != nil {
		t.Errorf("Named of the other kind = %+v", got)
	}
	tenants.Members("acme")[0].Name = "changed"
	tenants.All()[0].Name = "changed"
	if tenants.Members("acme")[0].Name != "builder" || tenants.All()[0].Name != "acme" {
		t.Error("a caller changed the list")
	}
}

func TestNilAndZeroTenantsAdmitNobody(t *testing.T) {
	t.Parallel()
	for _, tenants := range []*Tenants{nil, {}} {
		_, member := tenants.Lookup(fixedKey(t, Client, 1))
		_, tenant := tenants.Tenant("acme")
		_, join := tenants.Join(TokenID{})
		lists := len(tenants.All()) + len(tenants.Members("")) + len(tenants.Joins("")) + len(tenants.Named("", Client, ""))
		if member || tenant || join || lists != 0 {
			t.Errorf("%v admits somebody", tenants)
		}
		if merged, leftOut := tenants.Merge(nil); len(merged.All()) != 0 || leftOut != nil {
			t.Errorf("merged with nothing, %v admits somebody, %v", tenants, leftOut)
		}
	}
}

func TestTenantsFileWithOneBadLineIsRefusedWhole(t *testing.T) {
	t.Parallel()
	client, exec, next := fixedKey(t, Client, 1).String(), fixedKey(t, Executor, 1).String(), fixedKey(t, Executor, 2).String()
	third := fixedKey(t, Executor, 3).String()
	token := "join_" + strings.Repeat("a", 40)
	join := "join 10" + tokenText[2:] + " sha256:" + hex64
	for name, test := range map[string]struct{ line, want string }{
		"unknown word":           {"relay x", "none of tenant, client, exec and join"},
		"word in upper case":     {"Client " + client + " b", "none of tenant"},
		"tenant without name":    {"tenant", "has no name"},
		"tenant twice":           {"tenant acme conns=3", `tenant "acme" is already on line 1`},
		"tenant's name":          {"tenant -x", "not allowed"},
		"limit unknown":          {"tenant x bytes=3", `unknown option "bytes"`},
		"limit twice":            {"tenant x conns=3 conns=3", `option "conns" is given twice`},
		"limit of nothing":       {"tenant x conns=0", "want a number from 1 to 1000000"},
		"limit above all":        {"tenant x execs=1000001", "want a number"},
		"limit in words":         {"tenant x circuits=many", "want a number"},
		"limit with zeros":       {"tenant x circuits=010", "want a number"},
		"limit, no value":        {"tenant x conns", "a word too many"},
		"no name":                {"exec " + next, "2 fields: want exec KEY NAME"},
		"kind and key differ":    {"client " + next + " b", "an executor's key"},
		"client's option":        {"client " + fixedKey(t, Client, 2).String() + " b since=1", `unknown option "since"`},
		"key twice":              {"exec " + exec + " b", "is already on line 3"},
		"name twice":             {"exec " + next + " one", `name "one" is already that of another exec of tenant "acme", on line 3`},
		"client's name twice":    {"client " + fixedKey(t, Client, 2).String() + " alice", `already that of another client`},
		"follows a stranger":     {"exec " + next + " one follows=" + third, "already that of another exec"},
		"follows itself":         {"exec " + next + " b follows=" + next, "cannot follow itself"},
		"follows a client":       {"exec " + next + " b follows=" + client, "a client's key"},
		"third with the name":    {"exec " + next + " one follows=" + exec + "\nexec " + third + " one follows=" + next, "already that of another exec"},
		"unknown option":         {"exec " + next + " b cmd=x", `unknown option "cmd"`},
		"unspeakable option":     {"exec " + next + " b CMD=x", "line has an unknown option"},
		"option twice":           {"exec " + next + " b since=1 since=1", `option "since" is given twice`},
		"since in words":         {"exec " + next + " b since=now", "want a number"},
		"since never":            {"exec " + next + " b since=0", "want a number"},
		"token cut short":        {"exec " + next + " b token=" + tokenText[1:], "32 lower-case hex digits"},
		"token of nobody":        {"exec " + next + " b token=" + strings.Repeat("0", 32), "no token's"},
		"MAC in upper case":      {"exec " + next + " b mac=" + strings.ToUpper(hex64), "64 lower-case hex digits"},
		"MAC of nobody":          {"exec " + next + " b mac=" + strings.Repeat("0", 64), "nobody's"},
		"two names":              {"exec " + next + " b c", "a word too many"},
		"trailing comment":       {"exec " + next + " b # builder", "a word too many"},
		"join, no hash":          {"join 10" + tokenText[2:], "2 fields"},
		"join, other hash":       {"join 10" + tokenText[2:] + " sha512:" + hex64 + " expires=2026-12-01T00:00:00Z", "sha256:"},
		"join, hash cut short":   {join[:len(join)-1] + " expires=2026-12-01T00:00:00Z", "64 lower-case hex digits"},
		"join twice":             {"join " + tokenText + " sha256:" + hex64 + " expires=2026-12-01T00:00:00Z", "is already on line 4"},
		"join, no end":           {join, "does not say when the token expires"},
		"join, time with zone":   {join + " expires=2026-12-01T00:00:00+01:00", "want a time in UTC"},
		"join, time as +00":      {join + " expires=2026-12-01T00:00:00+00:00", "want a time in UTC"},
		"join, part of a second": {join + " expires=2026-12-01T00:00:00.5Z", "want a time in UTC"},
		"join, short time":       {join + " expires=2026-12-01T00:00Z", "want a time in UTC"},
		"join, long ago":         {join + " expires=1950-12-01T00:00:00Z", "want a time in UTC"},
		"join, two stars":        {join + " name=*-* expires=2026-12-01T00:00:00Z", "more than one *"},
		"join, pattern":          {join + " name=-* expires=2026-12-01T00:00:00Z", "not allowed"},
		"join, no pattern":       {join + " name= expires=2026-12-01T00:00:00Z", "wrong length"},
		"join, no uses":          {join + " uses=0 expires=2026-12-01T00:00:00Z", "want a number from 1 to 10000"},
		"join, too many uses":    {join + " uses=10001 expires=2026-12-01T00:00:00Z", "want a number"},
		"join, used up and more": {join + " used=2 expires=2026-12-01T00:00:00Z", "more than its 1 uses"},
		"join, used below none":  {join + " used=-1 expires=2026-12-01T00:00:00Z", "want a number from 0"},
		"join by an executor":    {join + " by=" + exec + " expires=2026-12-01T00:00:00Z", "an executor's key"},
		"private key for a key":  {"client clientsecret_" + hex64 + " b", "private key"},
		"private key as option":  {"exec " + next + " b follows=execsecret_x", "private key"},
		"private key as limit":   {"tenant x conns=execsecret_x", "private key"},
		"token as a name":        {"exec " + next + " " + token, "join token"},
	} {
		lines := "tenant acme\nclient " + client + " alice\nexec " + exec + " one\njoin " + tokenText + " sha256:" + hex64 + " expires=2026-12-01T00:00:00Z\n"
		tenants, err := ParseTenants("file", strings.NewReader(lines+test.line+"\n"))
		if err == nil || tenants != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want nil and an error that says %q", name, tenants, err, test.want)
			continue
		}
		if place := fmt.Sprintf("file:%d: ", 5+strings.Count(test.line, "\n")); !strings.HasPrefix(err.Error(), place) {
			t.Errorf("%s: %v, want an error at %s", name, err, place)
		}
		if strings.Contains(err.Error(), hex64[:20]) || strings.Contains(err.Error(), token[5:]) {
			t.Errorf("%s: the error repeats a secret: %v", name, err)
		}
	}
	for _, line := range []string{"client " + client + " alice", "join " + tokenText + " sha256:" + hex64 + " expires=2026-12-01T00:00:00Z"} {
		if _, err := ParseTenants("file", strings.NewReader(line)); err == nil || !strings.Contains(err.Error(), "file:1: ") || !strings.Contains(err.Error(), "before the first tenant line") {
			t.Errorf("%.20q without a tenant: %v", line, err)
		}
	}
}

func TestTheOlderKeyMayStandAfterTheOneThatFollowsIt(t *testing.T) {
	t.Parallel()
	older, newer := fixedKey(t, Executor, 1), fixedKey(t, Executor, 2)
	tenants := tenantsOf(t, "tenant acme", fmt.Sprintf("exec %s b follows=%s", newer, older), fmt.Sprintf("exec %s b", older))
	if named := tenants.Named("acme", Executor, "b"); len(named) != 2 || named[0].Key != newer {
		t.Errorf("Named = %+v, want both keys", named)
	}
}

func TestKeysThatFollowInACircleShareNoName(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("tenant acme\n")
	for i := range byte(3) {
		fmt.Fprintf(&text, "exec %s b follows=%s\n", fixedKey(t, Executor, i), fixedKey(t, Executor, (i+1)%3))
	}
	if _, err := ParseTenants("file", strings.NewReader(text.String())); err == nil || !strings.HasPrefix(err.Error(), "file:4: ") {
		t.Errorf("three keys of one name: %v, want an error at the third", err)
	}
}

func TestMergeLetsTheOperatorsListWin(t *testing.T) {
	t.Parallel()
	key := func(kind Kind, n byte) PublicKey { return fixedKey(t, kind, n) }
	listed := tenantsOf(t,
		"tenant acme conns=5",
		fmt.Sprintf("exec %s builder", key(Executor, 1)),
		fmt.Sprintf("client %s alice", key(Client, 1)),
		"join "+tokenText+" sha256:"+hex64+" uses=2 expires=2026-12-01T00:00:00Z",
		"tenant empty")
	enrolled := tenantsOf(t,
		"tenant gone", fmt.Sprintf("exec %s x", key(Executor, 2)), "join 20"+tokenText[2:]+" sha256:"+hex64+" expires=2026-12-01T00:00:00Z",
		"tenant acme conns=999",
		fmt.Sprintf("exec %s other-name", key(Executor, 1)), // the operator's: redundant
		fmt.Sprintf("exec %s builder follows=%s", key(Executor, 3), key(Executor, 1)),
		fmt.Sprintf("exec %s builder follows=%s", key(Executor, 4), key(Executor, 3)),
		fmt.Sprintf("exec %s alice", key(Executor, 5)), // another kind
		fmt.Sprintf("exec %s orphan follows=%s", key(Executor, 7), key(Executor, 8)),
		fmt.Sprintf("client %s alice", key(Client, 2)),
		"join "+tokenText+" sha256:"+hex64+" uses=5 used=4 expires=2027-12-01T00:00:00Z",
		"join 30"+tokenText[2:]+" sha256:"+hex64+" expires=2026-12-01T00:00:00Z",
		"tenant empty", fmt.Sprintf("exec %s builder", key(Executor, 6)))

	before := writeTenants(listed)
	merged, leftOut := listed.Merge(enrolled)
	var errs []string
	for _, err := range leftOut {
		errs = append(errs, err.Error())
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q is more than a line", err)
		}
	}
	wantErrors := []string{
		`enrolled exec "x" (` + key(Executor, 2).Short() + `) is left out: there is no tenant "gone" any more`,
		`enrolled client "alice" (` + key(Client, 2).Short() + `) is left out: in tenant "acme" the name is that of ` + key(Client, 1).Short(),
		`enrolled exec "builder" (` + key(Executor, 4).Short() + `) is left out: in tenant "acme" the name is that of ` + key(Executor, 1).Short(),
		`enrolled exec "orphan" (` + key(Executor, 7).Short() + `) is left out: the key that it is to replace, ` + key(Executor, 8).Short() + `, is not listed any more`,
		`join token 20` + tokenText[2:] + ` is left out: there is no tenant "gone" any more`,
	}
	if diff := cmp.Diff(wantErrors, errs); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	want := strings.Join([]string{
		"tenant acme conns=5",
		fmt.Sprintf("exec %s builder", key(Executor, 1)),
		fmt.Sprintf("client %s alice", key(Client, 1)),
		fmt.Sprintf("exec %s alice", key(Executor, 5)),
		fmt.Sprintf("exec %s builder follows=%s", key(Executor, 3), key(Executor, 1)), // after those that follow nobody
		"join " + tokenText + " sha256:" + hex64 + " name=* uses=2 used=2 expires=2026-12-01T00:00:00Z",
		"join 30" + tokenText[2:] + " sha256:" + hex64 + " name=* uses=1 used=0 expires=2026-12-01T00:00:00Z",
		"tenant empty",
		fmt.Sprintf("exec %s builder", key(Executor, 6)),
		"",
	}, "\n")
	if diff := cmp.Diff(want, writeTenants(merged)); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if writeTenants(listed) != before {
		t.Error("the operator's list changed")
	}
}

// A machine that the operator has listed may join with a token all the same, for a client that is to trust its key.
func TestMergeKeepsTheAnnouncementOfAListedKey(t *testing.T) {
	t.Parallel()
	line := fmt.Sprintf("exec %s builder", fixedKey(t, Executor, 1))
	joined := line + " token=" + tokenText + " mac=" + hex64 + " since=1"
	for name, test := range map[string]struct{ listed, enrolled, want string }{
		"joined":                      {line, joined, joined},
		"under another name":          {line, strings.Replace(joined, "builder", "other", 1), line},
		"with a token of the listing": {line + " token=30" + tokenText[2:] + " mac=" + hex64, joined, line + " token=30" + tokenText[2:] + " mac=" + hex64},
	} {
		merged, leftOut := tenantsOf(t, "tenant acme", test.listed).Merge(tenantsOf(t, "tenant acme", test.enrolled))
		if got, want := writeTenants(merged), "tenant acme\n"+test.want+"\n"; got != want || leftOut != nil {
			t.Errorf("%s: %q, left out %v, want %q", name, got, leftOut, want)
		}
	}
}

func TestMergeNeverMixesTwoTokensOfOneID(t *testing.T) {
	t.Parallel()
	const end = " uses=2 used=1 expires=2026-12-01T00:00:00Z"
	listed := tenantsOf(t, "tenant acme", "join "+tokenText+" sha256:"+hex64+" uses=2 expires=2026-12-01T00:00:00Z", "tenant b")
	for name, lines := range map[string][]string{
		"another secret": {"tenant acme", "join " + tokenText + " sha256:ff" + hex64[2:] + end},
		"another tenant": {"tenant b", "join " + tokenText + " sha256:" + hex64 + end},
	} {
		merged, leftOut := listed.Merge(tenantsOf(t, lines...))
		if writeTenants(merged) != writeTenants(listed) || len(leftOut) != 1 || !strings.Contains(leftOut[0].Error(), "another token") {
			t.Errorf("%s: got\n%s%v, want the operator's list and one error", name, writeTenants(merged), leftOut)
		}
	}
}

// FuzzParseTenants: what parses, written anew, parses to the same, and every key in it stands in the text.
func FuzzParseTenants(f *testing.F) {
	client, exec, next := fixedKey(f, Client, 1).String(), fixedKey(f, Executor, 1).String(), fixedKey(f, Executor, 2).String()
	for _, text := range []string{
		"", "# none", "tenant a", "tenant a conns=1 execs=2 circuits=3\r\n\nclient " + client + " x\nexec\t" + exec + " x",
		"tenant a\nexec " + exec + " x\nexec " + next + " x follows=" + exec + " since=9 token=" + tokenText + " mac=" + hex64,
		"tenant a\njoin " + tokenText + " sha256:" + hex64 + " expires=2026-12-01T00:00:00Z name=b-* uses=3 used=1 by=" + client,
		"tenant a\ntenant b\ntenant a", "exec " + exec + " x", "tenant a\nexec " + exec + " x=y", "tenant a a=", "join x y",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		tenants, err := ParseTenants("f", strings.NewReader(text))
		if err != nil {
			return
		}
		written := writeTenants(tenants)
		again, err := ParseTenants("f", strings.NewReader(written))
		if err != nil || writeTenants(again) != written || len(again.All()) != len(tenants.All()) {
			t.Fatalf("written anew: %v", err)
		}
		for _, tenant := range tenants.All() {
			for _, member := range tenants.Members(tenant.Name) {
				found, ok := again.Lookup(member.Key)
				found.Line = member.Line // blank lines and comments are gone
				if !ok || found != member || !strings.Contains(text, member.Key.String()) {
					t.Errorf("written anew, %+v is %+v", member, found)
				}
			}
			for _, join := range tenants.Joins(tenant.Name) {
				found, ok := again.Join(join.ID)
				found.Line = join.Line
				if !ok || found != join || join.Used > join.Uses || join.Expires.IsZero() {
					t.Errorf("written anew, %+v is %+v", join, found)
				}
			}
		}
		if merged, leftOut := tenants.Merge(tenants); leftOut != nil || writeTenants(merged) != written {
			t.Errorf("merged with itself, the list is\n%s%v", writeTenants(merged), leftOut)
		}
	})
}
