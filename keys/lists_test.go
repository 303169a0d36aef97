package keys

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// testRelay is the relay of the tests' files.
func testRelay(t testing.TB) RelayURL {
	t.Helper()
	return RelayURL{Host: "relay.example.com", Port: 4433, Key: fixedKey(t, Relay, 9)}
}

func TestAuthorizedClientsAreFound(t *testing.T) {
	t.Parallel()
	alice, bob, eve := fixedKey(t, Client, 1), fixedKey(t, Client, 2), fixedKey(t, Client, 3)
	text := "# who may run\n\n" + alice.String() + "\talice at work \r\n  " + bob.String()
	clients, err := ParseAuthorizedClients("authorized_clients", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := []AuthorizedClient{{Key: alice, Name: "alice at work", Line: 3, Rights: AllRights()}, {Key: bob, Line: 4, Rights: AllRights()}}
	compareKeys := cmp.AllowUnexported(PublicKey{})
	if diff := cmp.Diff(want, clients.All(), compareKeys); diff != "" {
		t.Errorf("All() (-want +got):\n%s", diff)
	}
	if got, ok := clients.Lookup(alice); !ok || !cmp.Equal(got, want[0], compareKeys) {
		t.Errorf("Lookup(alice) = %v, %v, want %v", got, ok, want[0])
	}
	asExecutor := fixedKey(t, Executor, 1)
	for _, stranger := range []PublicKey{eve, asExecutor, {}} {
		if got, ok := clients.Lookup(stranger); ok {
			t.Errorf("Lookup(%v) = %v, want nobody", stranger, got)
		}
	}
}

func TestOptionsSayForWhomAClientActsAndWhatItSees(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for options, want := range map[string]AuthorizedClient{
		"":                                {},
		"as=ci ":                          {As: "ci"},
		`as="build.farm_2-A" `:            {As: "build.farm_2-A"},
		"as=" + strings.Repeat("x", 64):   {As: strings.Repeat("x", 64)},
		"as=clients ":                     {As: "clients"},
		"view=all ":                       {ViewAll: true},
		"control=all ":                    {ViewAll: true, ControlAll: true},
		"control=all,view=all ":           {ViewAll: true, ControlAll: true},
		`view="all",as=ci,control="all" `: {As: "ci", ViewAll: true, ControlAll: true},
	} {
		want.Key, want.Name, want.Line, want.Rights = key, "me", 1, AllRights()
		clients, err := ParseAuthorizedClients("file", strings.NewReader(strings.TrimSpace(options)+" "+key.String()+" me"))
		if got, ok := clients.Lookup(key); err != nil || !ok || !cmp.Equal(got, want, cmp.AllowUnexported(PublicKey{})) {
			t.Errorf("%q gives %+v, %v, %v, want %+v", options, got, ok, err, want)
		}
	}
}

func TestNilAndZeroListsHoldNobody(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for _, clients := range []*AuthorizedClients{nil, {}} {
		if _, ok := clients.Lookup(key); ok || len(clients.All()) != 0 {
			t.Errorf("%v lets somebody in", clients)
		}
	}
	for _, known := range []*KnownExecutors{nil, {}} {
		if _, ok := known.Lookup("builder"); ok || len(known.All()) != 0 {
			t.Errorf("%v knows somebody", known)
		}
	}
}

func TestAuthorizedClientsFileWithOneBadLineIsRefusedWhole(t *testing.T) {
	t.Parallel()
	good := fixedKey(t, Client, 1).String()
	other := fixedKey(t, Client, 2).String()
	for name, test := range map[string]struct{ line, want string }{
		"unknown option":        {"expiry=2027-01-01 " + other, `unknown option "expiry"`},
		"unknown bare option":   {"restricted " + other, `unknown option "restricted"`},
		"second option":         {`a="x, \" y",max-time=10m ` + other + " ci", `unknown option "a"`},
		"option with operator":  {"sandbox>=strict " + other, `option "sandbox": want sandbox<=`},
		"option in upper case":  {"Expires=1 " + other, "neither a key nor an option"},
		"operator in disorder":  {"a=>1 " + other, "unknown operator"},
		"open quote":            {`cmd="git ` + other, "not closed"},
		"text after the quote":  {`cmd="git"x ` + other, "after the closing quote"},
		"option without value":  {"cmd= " + other, "no value"},
		"comma at the end":      {"cmd=git, " + other, "neither a key nor an option"},
		"option, no key":        {"max-execs=1", "no key after the options"},
		"unknown value":         {"view=some " + other, `option "view": want view=all`},
		"value left out":        {"control " + other, `option "control": want control=all`},
		"empty value":           {`view="" ` + other, "want view=all"},
		"other operator":        {"control>=all " + other, "want control=all"},
		"option twice":          {"view=all,view=all " + other, `option "view" is given twice`},
		"principal left out":    {"as " + other, `option "as": want as=NAME`},
		"principal empty":       {`as="" ` + other, "wrong length"},
		"principal too long":    {"as=" + strings.Repeat("x", 65) + " " + other, "wrong length"},
		"principal with space":  {`as="a b" ` + other, "not allowed"},
		"principal with slash":  {"as=a/b " + other, "not allowed"},
		"principal is a flag":   {"as=-a " + other, "not allowed"},
		"principal with umlaut": {"as=b\u00fc " + other, "not allowed"},
		"principal is a key":    {"as=" + good + " " + other, "as keys do"},
		"principal as a key":    {"as=client_ci " + other, "as keys do"},
		"principal by operator": {"as>=ci " + other, "want as=NAME"},
		"principal is a secret": {"as=clientsecret_x " + other, "replace the key"},
		"executor's key":        {fixedKey(t, Executor, 2).String(), "an executor's key"},
		"relay's key":           {fixedKey(t, Relay, 2).String(), "a relay's key"},
		"key listed twice":      {good + " again", "already on line 1"},
		"key cut short":         {other[:60], "characters"},
		"key in upper case":     {"client_" + strings.ToUpper(other[7:]), "other than a-z"},
		"wrong checksum":        {other[:30] + "77" + other[32:], "checksum"},
		"short form":            {fixedKey(t, Client, 2).Short(), "characters"},
		"known_executors' line": {"builder " + fixedKey(t, Executor, 2).String(), `unknown option "builder"`},
		"control character":     {other + " a\x1b[2J", "U+001B"},
		"NUL":                   {other + " \x00", "U+0000"},
		"broken UTF-8":          {other + " \xff", "UTF-8"},
		"right-to-left mark":    {other + " a\u202eb", "U+202E"},
		"byte order mark":       {"\ufeff" + other, "U+FEFF"},
		"lone CR":               {other + "\r" + other, "U+000D"},
		"endless line":          {"# " + strings.Repeat("x", maxLineSize), "longer than"},
	} {
		clients, err := ParseAuthorizedClients("file", strings.NewReader(good+" alice\n\n"+test.line+"\n"+other[:0]+"# end\n"))
		if err == nil {
			t.Errorf("%s: accepted as %v", name, clients.All())
			continue
		}
		if clients != nil || !strings.HasPrefix(err.Error(), "file:3: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want nil and an error at file:3 that says %q", name, clients, err, test.want)
		}
	}
}

func TestOptionsAreCutAsInOpenSSH(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]struct {
		options []option
		rest    string
	}{
		`a k`:               {[]option{{"a", "", ""}}, "k"},
		`a`:                 {[]option{{"a", "", ""}}, ""},
		`a,b=1,c>=2,d<=3 k`: {[]option{{"a", "", ""}, {"b", "=", "1"}, {"c", ">=", "2"}, {"d", "<=", "3"}}, "k"},
		"a=x  \t k name":    {[]option{{"a", "=", "x"}}, "k name"},
		`cmd="git push, \"now\" \\ \n",max-time=10m k`: {[]option{{"cmd", "=", `git push, "now" \ \n`}, {"max-time", "=", "10m"}}, "k"},
		`a="" k`:                 {[]option{{"a", "=", ""}}, "k"},
		`a=builder-*,b=/x/y:z k`: {[]option{{"a", "=", "builder-*"}, {"b", "=", "/x/y:z"}}, "k"},
	} {
		options, rest, err := cutOptions(line)
		if err != nil || rest != want.rest {
			t.Errorf("cutOptions(%q) left %q, %v, want %q", line, rest, err, want.rest)
		}
		if diff := cmp.Diff(want.options, options, cmp.AllowUnexported(option{})); diff != "" {
			t.Errorf("cutOptions(%q) (-want +got):\n%s", line, diff)
		}
	}
}

func TestFileAboveTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	line := "# " + strings.Repeat("x", 1021) + "\n"
	for size, wantErr := range map[int]bool{maxFileSize: false, maxFileSize + 1: true} {
		text := strings.Repeat(line, maxFileSize/len(line))
		text += strings.Repeat("\n", size-len(text))
		if _, err := ParseAuthorizedClients("file", strings.NewReader(text)); (err != nil) != wantErr {
			t.Errorf("file of %d bytes: error %v, want an error: %v", size, err, wantErr)
		}
	}
	if _, err := ParseAuthorizedClients("file", endless{}); err == nil {
		t.Error("an endless file was accepted")
	}
}

// endless is a reader that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestKnownExecutorsAreFound(t *testing.T) {
	t.Parallel()
	key, relay := fixedKey(t, Executor, 1), testRelay(t)
	text := fmt.Sprintf("builder %s %s\nsame.under-another_name %s %s\n", key, relay, key, relay)
	known, err := ParseKnownExecutors("known_executors", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := known.Lookup("builder"); !ok || got != (KnownExecutor{"builder", key, relay}) {
		t.Errorf("Lookup(builder) = %v, %v", got, ok)
	}
	if got, ok := known.Lookup("Builder"); ok {
		t.Errorf("Lookup(Builder) = %v, want nothing", got)
	}
	if n := len(known.All()); n != 2 {
		t.Errorf("All() has %d entries, want 2", n)
	}
}

func TestKnownExecutorsFileWithOneBadLineIsRefusedWhole(t *testing.T) {
	t.Parallel()
	key, relay := fixedKey(t, Executor, 1).String(), testRelay(t).String()
	for name, test := range map[string]struct{ line, want string }{
		"alias again":      {"builder " + key + " " + relay, "given twice"},
		"client's key":     {"b " + fixedKey(t, Client, 1).String() + " " + relay, "a client's key"},
		"no relay":         {"b " + key, "2 fields"},
		"too much":         {"b " + key + " " + relay + " x", "4 fields"},
		"relay, no key":    {"b " + key + " postern://h:1", "no key"},
		"relay, exec key":  {"b " + key + " postern://h:1#" + key, "an executor's key"},
		"alias is a path":  {"../b " + key + " " + relay, "not allowed"},
		"alias is a flag":  {"-b " + key + " " + relay, "not allowed"},
		"alias not ASCII":  {"b\u00fcilder " + key + " " + relay, "not allowed"},
		"columns reversed": {key + " b " + relay, "not a public key"},
	} {
		known, err := ParseKnownExecutors("file", strings.NewReader("builder "+key+" "+relay+"\n"+test.line))
		if err == nil || known != nil || !strings.HasPrefix(err.Error(), "file:2: ") || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, %v, want nil and an error at file:2 that says %q", name, known.All(), err, test.want)
		}
	}
}

func TestOptionAfterTheKeyIsRefusedRatherThanTakenForAName(t *testing.T) {
	key := generate(t, Client).Public().String()
	for _, comment := range []string{"as=team alice", "carol control=all", "view=all", "team=a b=c"} {
		_, err := ParseAuthorizedClients("clients", strings.NewReader(key+" "+comment+"\n"))
		if err == nil || !strings.Contains(err.Error(), "after the key") {
			t.Errorf("%q: %v", comment, err)
		}
	}
}
