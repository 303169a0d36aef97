package keys

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// optionsOf writes a client's options as they stand before its key, ready for it.
func optionsOf(client AuthorizedClient) string {
	var options []string
	add := func(when bool, format string, values ...any) {
		if when {
			options = append(options, fmt.Sprintf(format, values...))
		}
	}
	nameOf := func(ceiling any) string {
		for name, c := range sandboxCeilings {
			if c == ceiling {
				return name
			}
		}
		for name, c := range networkCeilings {
			if c == ceiling {
				return name
			}
		}
		return "none of those"
	}
	r := client.Rights
	add(client.As != "", "as=%s", client.As)
	add(client.ControlAll, "control=all")
	add(client.ViewAll, "view=all")
	add(!client.Expires.IsZero(), "expires=%s", client.Expires.Format(time.RFC3339Nano))
	add(!r.Environment, "restrict")
	add(!r.Environment && r.Terminal, "pty")
	add(!r.TakeOver, "sandbox<=%s", nameOf(r.Sandbox))
	add(!r.TakeOver, "network<=%s", nameOf(r.Network))
	add(r.MaxTime > 0, "max-time=%s", r.MaxTime)
	add(r.MaxExecs > 0, "max-execs=%d", r.MaxExecs)
	for _, c := range r.Commands {
		var words []string
		for _, w := range c.Words {
			words = append(words, "'"+w+"'")
		}
		if c.More {
			words = append(words, "*")
		}
		add(true, `command="%s"`, strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(strings.Join(words, " ")))
	}
	if options == nil {
		return ""
	}
	return strings.Join(options, ",") + " "
}

// lineOf is what a line with these options allows.
func lineOf(t interface {
	Helper()
	Fatalf(string, ...any)
}, key PublicKey, options ...string,
) AuthorizedClient {
	t.Helper()
	clients, err := ParseAuthorizedClients("f", strings.NewReader(strings.Join(options, ",")+" "+key.String()))
	if err != nil {
		t.Fatalf("%q: %v", options, err)
	}
	client, _ := clients.Lookup(key)
	return client
}

func TestOptionsNarrowWhatAClientMayStart(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for options, want := range map[string]func(*AuthorizedClient){
		"sandbox<=read-only":       func(c *AuthorizedClient) { c.Rights.Sandbox, c.Rights.TakeOver = SandboxReadOnly, false },
		"sandbox<=workspace-write": func(c *AuthorizedClient) { c.Rights.Sandbox, c.Rights.TakeOver = SandboxWorkspaceWrite, false },
		`sandbox<="full-access"`:   func(c *AuthorizedClient) { c.Rights.TakeOver = false },
		"network<=none":            func(c *AuthorizedClient) { c.Rights.Network, c.Rights.TakeOver = NetworkNone, false },
		"network<=allow-list":      func(c *AuthorizedClient) { c.Rights.Network, c.Rights.TakeOver = NetworkAllowList, false },
		"network<=host":            func(c *AuthorizedClient) { c.Rights.TakeOver = false },
		"max-time=1h30m":           func(c *AuthorizedClient) { c.Rights.MaxTime, c.Rights.TakeOver = 90*time.Minute, false },
		"max-execs=1":              func(c *AuthorizedClient) { c.Rights.MaxExecs = 1 },
		"max-execs=1000000":        func(c *AuthorizedClient) { c.Rights.MaxExecs = 1_000_000 },
		"expires=2026-12-01":       func(c *AuthorizedClient) { c.Expires = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) },
		"expires=2026-12-01T18:30:00+01:00": func(c *AuthorizedClient) {
			c.Expires = time.Date(2026, 12, 1, 17, 30, 0, 0, time.UTC)
		},
		`command=/bin/a,as=ci,command="/bin/b c"`: func(c *AuthorizedClient) {
			c.As, c.Rights.AnyCommand, c.Rights.TakeOver = "ci", false, false
			c.Rights.Commands = []Command{{Words: []string{"/bin/a"}}, {Words: []string{"/bin/b", "c"}}}
		},
	} {
		expected := AuthorizedClient{Key: key, Line: 1, Rights: AllRights()}
		want(&expected)
		if diff := cmp.Diff(expected, lineOf(t, key, options), cmp.AllowUnexported(PublicKey{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", options, diff)
		}
	}
}

func TestOptionThatSaysNoCeilingRefusesTheFile(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1).String()
	for options, want := range map[string]string{
		"sandbox=read-only":                  `option "sandbox": want sandbox<=read-only`,
		"sandbox<=strict":                    `option "sandbox": want`,
		"sandbox<=Read-Only":                 `option "sandbox": want`,
		"sandbox":                            `option "sandbox": want`,
		"network<=internet":                  `option "network": want network<=none`,
		"network>=none":                      `option "network": want`,
		"expires=tomorrow":                   `option "expires": want expires=2026-12-01`,
		"expires=2026-02-30":                 `option "expires": want`,
		"expires=2026-12-01T18:00:00":        `option "expires": want`,
		`expires="2026-12-01 18:00"`:         `option "expires": want`,
		"expires<=2026-12-01":                `option "expires": want`,
		"expires=0001-01-01":                 "year before 1970",
		"expires=0001-01-01T00:00:00Z":       "year before 1970",
		"max-time=0s":                        `option "max-time": want max-time=DURATION above zero`,
		"max-time=-1h":                       "above zero",
		"max-time=60":                        "above zero",
		"max-time=9999999h9999999h":          "above zero",
		"max-time<=1h":                       "above zero",
		"max-execs=0":                        `option "max-execs": want max-execs=N with N from 1 to 1000000`,
		"max-execs=1000001":                  "from 1 to",
		"max-execs=+5":                       "from 1 to",
		"max-execs=007":                      "from 1 to",
		"max-execs=1e3":                      "from 1 to",
		"max-execs=99999999999999999999":     "from 1 to",
		"sandbox<=read-only,sandbox<=full":   "given twice",
		"command=/bin/x,control=all":         "wider than this line",
		"control=all,sandbox<=full-access":   "wider than this line",
		"network<=host,view=all,control=all": "wider than this line",
		"command":                            `option "command": want command="PATH WORDS"`,
		"command<=/bin/x":                    `option "command": want`,
		`command=""`:                         "no words",
		`command="   "`:                      "no words",
		"command=ls":                         "not the absolute path",
		"command=*":                          "not the absolute path",
		"command=bin/ls":                     "not the absolute path",
		"command=./ls":                       "not the absolute path",
		"command=/":                          "not the absolute path",
		"command=/bin/":                      "not the absolute path",
		"command=/bin//ls":                   "not the absolute path",
		"command=/bin/./ls":                  "not the absolute path",
		"command=/usr/bin/../bin/ls":         "not the absolute path",
		`command="'' /bin/ls"`:               "not the absolute path",
		`command="/bin/echo 'x"`:             "not closed",
		"command=\"/bin/echo\tx\"":           "tab outside",
		`command=/bin/x,command=y`:           "not the absolute path",
	} {
		clients, err := ParseAuthorizedClients("file", strings.NewReader(options+" "+key))
		if err == nil || clients != nil || !strings.HasPrefix(err.Error(), "file:1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error at file:1 that says %q", options, err, want)
		}
	}
}

func TestWordsOfACommandAreSplitAtSpacesOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Command{
		"/bin/x":                {Words: []string{"/bin/x"}},
		"  /bin/x   a  ":        {Words: []string{"/bin/x", "a"}},
		"/bin/x *":              {Words: []string{"/bin/x"}, More: true},
		"/bin/x a *":            {Words: []string{"/bin/x", "a"}, More: true},
		"/bin/x * a":            {Words: []string{"/bin/x", "*", "a"}},
		"/bin/x a*":             {Words: []string{"/bin/x", "a*"}},
		"/bin/x **":             {Words: []string{"/bin/x", "**"}},
		"/bin/x '*'":            {Words: []string{"/bin/x", "*"}},
		"/bin/x ''":             {Words: []string{"/bin/x", ""}},
		"'/opt/my tool' 'a b'":  {Words: []string{"/opt/my tool", "a b"}},
		"/bin/x a'b c'd":        {Words: []string{"/bin/x", "ab cd"}},
		`/bin/x $HOME \n ~ "q"`: {Words: []string{"/bin/x", "$HOME", `\n`, "~", `"q"`}},
		"/bin/x 'a\tb'":         {Words: []string{"/bin/x", "a\tb"}},
		"/bin/X":                {Words: []string{"/bin/X"}},
	} {
		got, err := parseCommand(text)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", text, err, diff)
		}
	}
}

func TestEveryOptionAfterTheKeyIsRefusedRatherThanTakenForAName(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1).String()
	for _, comment := range []string{
		"sandbox<=read-only", "x network<=none",
		"expires=2026-12-01", "max-time=1s", "max-execs=1", `command="/bin/x y"`, "alice,command=/bin/x", "view=all,x", "sandbox>=x",
		"a=b,c<=d", "=restrict", "<=x", "expires", "command line", "no-restrict",
	} {
		_, err := ParseAuthorizedClients("f", strings.NewReader(key+" "+comment))
		if err == nil || !strings.Contains(err.Error(), "after the key") {
			t.Errorf("%q: %v", comment, err)
		}
	}
	for _, comment := range []string{"restricted", "pty1", "no-one", "expired", "commander line", "no", "restrict.example.org", "a/pty"} {
		if _, err := ParseAuthorizedClients("f", strings.NewReader(key+" "+comment)); err != nil {
			t.Errorf("the name %q: %v", comment, err)
		}
	}
}

func TestErrorsRepeatNothingOfACommand(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"hunter2", "/bin/x 'hunter2", "/bin/hunter2/", "/bin/x\thunter2"} {
		if _, err := parseCommand(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestZeroRightsAreClosed(t *testing.T) {
	t.Parallel()
	if r := (Rights{}); r.Sandbox != 0 || r.AnyCommand || r.Terminal || r.FullView || r.Environment || r.TakeOver || r.Network != NetworkNone {
		t.Errorf("the zero value allows something: %+v", r)
	}
}

func TestLinesExpireAtTheirMoment(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	one, two, three, four := fixedKey(t, Client, 1), fixedKey(t, Client, 2), fixedKey(t, Client, 3), fixedKey(t, Client, 4)
	text := fmt.Sprintf("expires=2026-12-02 %s\n%s\nexpires=2026-12-01 %s\nexpires=2026-12-03 %s", one, two, three, four)
	clients, err := ParseAuthorizedClients("f", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	never, _ := clients.Lookup(two)
	soon, _ := clients.Lookup(three)
	if never.Expired(at.AddDate(100, 0, 0)) || soon.Expired(at.Add(-1)) || !soon.Expired(at) || !soon.Expired(at.Add(1)) {
		t.Error("a line expires at another time than its own")
	}
	for _, c := range []struct{ after, want time.Time }{
		{at.AddDate(-1, 0, 0), at}, {at.Add(-1), at}, {at, at.AddDate(0, 0, 1)}, {at.AddDate(0, 0, 1), at.AddDate(0, 0, 2)}, {at.AddDate(0, 0, 2), time.Time{}},
	} {
		if got, ok := clients.NextExpiry(c.after); !got.Equal(c.want) || ok == c.want.IsZero() {
			t.Errorf("NextExpiry(%v) = %v, %v, want %v", c.after, got, ok, c.want)
		}
	}
	for _, none := range []*AuthorizedClients{nil, {}} {
		if at, ok := none.NextExpiry(time.Time{}); ok {
			t.Errorf("somebody expires at %v", at)
		}
	}
}

// narrower reports whether r allows nothing that s does not.
func narrower(r, s Rights) bool {
	covered := func(c Command) bool {
		return s.AnyCommand || slices.ContainsFunc(s.Commands, func(d Command) bool { return cmp.Equal(c, d) })
	}
	commands := !r.AnyCommand || s.AnyCommand
	for _, c := range r.Commands {
		commands = commands && covered(c)
	}
	atMost := func(a, b int64) bool { return b == 0 || a != 0 && a <= b }
	return commands && r.Sandbox <= s.Sandbox && r.Network <= s.Network &&
		(!r.Terminal || s.Terminal) && (!r.FullView || s.FullView) && (!r.Environment || s.Environment) && (!r.TakeOver || s.TakeOver) &&
		atMost(int64(r.MaxTime), int64(s.MaxTime)) && atMost(int64(r.MaxExecs), int64(s.MaxExecs))
}

// anyOptions are options of a line without restrict, each at most once, no two of a kind.
func anyOptions(t *rapid.T) []string {
	var options []string
	for _, kind := range [][]string{
		{"sandbox<=read-only", "sandbox<=workspace-write", "sandbox<=full-access"},
		{"network<=none", "network<=allow-list", "network<=host"},
		{"max-time=1s", "max-time=5h"},
		{"max-execs=1", "max-execs=9"},
		{"expires=2026-12-01"},
		{"command=/bin/x", `command="/bin/y *"`},
		{"as=ci"},
		{"view=all"},
	} {
		if rapid.Bool().Draw(t, "given") {
			options = append(options, rapid.SampledFrom(kind).Draw(t, "option"))
		}
	}
	return rapid.Permutation(options).Draw(t, "order")
}

func TestNoOptionWidensALine(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	rapid.Check(t, func(t *rapid.T) {
		all := anyOptions(t)
		whole := lineOf(t, key, all...)
		for i := range all {
			less := slices.Delete(slices.Clone(all), i, i+1)
			if without := lineOf(t, key, less...); !narrower(whole.Rights, without.Rights) {
				t.Fatalf("%q allows what %q does not: %+v and %+v", all, less, whole.Rights, without.Rights)
			}
		}
	})
}

func TestLinesOfOtherKeysAndTheOrderOfOptionsChangeNothing(t *testing.T) {
	t.Parallel()
	mine := fixedKey(t, Client, 1)
	rapid.Check(t, func(t *rapid.T) {
		options := anyOptions(t)
		lines := []string{strings.Join(options, ",") + " " + mine.String()}
		for i := range rapid.IntRange(0, 3).Draw(t, "others") {
			other, err := NewPublicKey(Client, [32]byte{1, byte(i)})
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, strings.Join(anyOptions(t), ",")+" "+other.String())
		}
		clients, err := ParseAuthorizedClients("f", strings.NewReader(strings.Join(rapid.Permutation(lines).Draw(t, "lines"), "\n")))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := clients.Lookup(mine)
		alone := lineOf(t, mine, rapid.Permutation(options).Draw(t, "again")...)
		got.Line, alone.Line = 0, 0
		if diff := cmp.Diff(alone, got, cmp.AllowUnexported(PublicKey{})); diff != "" {
			t.Fatalf("%q:\n%s", lines, diff)
		}
	})
}
