package executor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// rightsOf are the rights of a line with these options.
func rightsOf(t testing.TB, options string) keys.Rights {
	t.Helper()
	key, err := keys.Generate(keys.Client)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := keys.ParseAuthorizedClients("clients", strings.NewReader(options+" "+key.Public().String()))
	if err != nil {
		t.Fatal(err)
	}
	line, _ := clients.Lookup(key.Public())
	return line.Rights
}

// restrictedRights are those of a line that says restrict and nothing else.
var restrictedRights = keys.Rights{Sandbox: keys.SandboxReadOnly, AnyCommand: true}

func anyRights(t *rapid.T) keys.Rights {
	r := keys.Rights{
		Sandbox:  keys.SandboxCeiling(rapid.IntRange(0, 3).Draw(t, "line's sandbox")),
		Network:  keys.NetworkCeiling(rapid.IntRange(0, 2).Draw(t, "line's network")),
		Terminal: rapid.Bool().Draw(t, "terminal"), FullView: rapid.Bool().Draw(t, "full view"),
		Environment: rapid.Bool().Draw(t, "environment"), AnyCommand: rapid.Bool().Draw(t, "any command"),
		MaxTime: time.Duration(rapid.IntRange(0, 3).Draw(t, "max time")) * time.Minute,
	}
	if !r.AnyCommand {
		r.Commands = []keys.Command{{Words: []string{"/nowhere/x"}, More: true}}
	}
	return r
}

// anyOf draws some of these, in any order.
func anyOf(t *rapid.T, label string, of ...string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, len(of), rapid.ID[string]).Draw(t, label)
}

func TestNothingRunsWiderThanLineOwnerOrRequest(t *testing.T) {
	paths := []string{"/w", "/w/a", "/w/a/b", "/x", "/x/y", "/z", "/w/.git"}
	rapid.Check(t, func(t *rapid.T) {
		number := func(label string) uint64 { return rapid.Uint64Range(0, 2).Draw(t, label) }
		cfg := LocalConfig{
			Workspaces: anyOf(t, "workspaces", "/w", "/x/y", "/w/a"), Max: wire.SandboxMode(rapid.IntRange(1, 3).Draw(t, "owner's sandbox")),
			View: wire.View(rapid.IntRange(1, 2).Draw(t, "owner's view")), Limits: wire.Limits{Memory: number("owner's memory")}, MaxGrace: time.Hour,
		}
		asked := wire.ExecParams{
			Argv: []string{"x", "y"}, Inherit: wire.InheritCore, Sandbox: wire.SandboxMode(rapid.IntRange(1, 3).Draw(t, "asked sandbox")),
			Roots: anyOf(t, "asked roots", "/w", "/w/a", "/x/y", "/x/y/z"), View: wire.View(rapid.IntRange(0, 2).Draw(t, "asked view")),
			Limits: wire.Limits{Memory: number("asked memory")}, Timeout: time.Duration(number("asked timeout")) * 90 * time.Second,
			Env: anyOf(t, "variables", "TERM=x", "LD_PRELOAD=/w/x.so", "LC_ALL=C"),
		}
		if rapid.Bool().Draw(t, "tty") {
			asked.TTY = &wire.WinSize{}
		}
		r := anyRights(t)
		p, err := cfg.gate(r, asked)
		if err != nil {
			return
		}
		s, grace, err := cfg.prepare(r, p)
		if err != nil {
			return
		}
		if s.Policy.Sandbox > cfg.Max || s.Policy.Sandbox > widestModes[r.Sandbox] || s.Policy.Sandbox > asked.Sandbox || s.Policy.Sandbox == 0 {
			t.Fatalf("it runs in %v", s.Policy.Sandbox)
		}
		if s.Policy.Sandbox == wire.SandboxFullAccess && (r.Network != keys.NetworkHost || !r.FullView) {
			t.Fatalf("it runs without a sandbox, and so with the network and a sight of everything: %+v", r)
		}
		if s.Policy.View != wire.ViewMinimal && (cfg.View != wire.ViewFull || !r.FullView || asked.View == wire.ViewMinimal) {
			t.Fatalf("it sees everything")
		}
		own, wanted := Policy{Roots: cfg.Workspaces}, Policy{Roots: asked.Roots}
		for _, at := range paths {
			if s.Policy.allows(at) && !(own.allows(at) && (len(asked.Roots) == 0 || wanted.allows(at))) {
				t.Fatalf("it may write %s", at)
			}
		}
		if most := cfg.Limits.Meet(asked.Limits); s.Policy.Limits != most {
			t.Fatalf("limits %+v, want %+v", s.Policy.Limits, most)
		}
		if limit := r.MaxTime; limit > 0 && (p.Timeout == 0 || p.Timeout > limit || grace > limit) || asked.Timeout > 0 && (p.Timeout == 0 || p.Timeout > asked.Timeout) {
			t.Fatalf("time limit %v, grace %v; asked for %v, the line has %v", p.Timeout, grace, asked.Timeout, limit)
		}
		if s.TTY != nil && !r.Terminal {
			t.Fatal("it has a terminal")
		}
		if slices.Contains(s.Env, "LD_PRELOAD=/w/x.so") && (!r.Environment || !r.AnyCommand) {
			t.Fatal("it has a variable of the client's choice")
		}
		if !r.AnyCommand && (s.Argv[0] != "/nowhere/x" || len(cfg.Workspaces) > 0 && s.Dir != cfg.Workspaces[0]) {
			t.Fatalf("it runs %q in %s", s.Argv, s.Dir)
		}
	})
}

func TestForcedCommandsAreMatchedWordForWord(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "*", "a", "a b", "/bin/x", "x"})
	file := rapid.SampledFrom([]string{"/bin/x", "/opt/x", "/bin/y", "/bin/*"})
	// model says the same of texts in which every word ends with NUL, which no word has.
	model := func(commands []keys.Command, asked []string) (string, bool) {
		text := strings.Join(asked, "\x00") + "\x00"
		for _, c := range commands {
			tail := "\x00" + strings.Join(append(slices.Clone(c.Words[1:]), ""), "\x00")
			for _, spelling := range []string{c.Words[0], c.Words[0][strings.LastIndexByte(c.Words[0], '/')+1:]} {
				if text == spelling+tail || c.More && strings.HasPrefix(text, spelling+tail) {
					return c.Words[0], true
				}
			}
		}
		return "", false
	}
	rapid.Check(t, func(t *rapid.T) {
		var commands []keys.Command
		for range rapid.IntRange(0, 3).Draw(t, "commands") {
			words := append([]string{file.Draw(t, "file")}, rapid.SliceOfN(word, 0, 2).Draw(t, "words")...)
			commands = append(commands, keys.Command{Words: words, More: rapid.Bool().Draw(t, "more")})
		}
		first := rapid.OneOf(file, rapid.SampledFrom([]string{"x", "y", "*", "X", "bin/x", "./x", "/bin//x", "/bin/x/", "/bin/../bin/x"}))
		asked := append([]string{first.Draw(t, "first")}, rapid.SliceOfN(word, 0, 3).Draw(t, "asked")...)
		path, ok := model(commands, asked)
		got, matched := forcedArgv(commands, asked)
		if matched != ok || ok && (got[0] != path || !slices.Equal(got[1:], asked[1:])) {
			t.Fatalf("%+v and %q: runs %q, %v; want %q, %v", commands, asked, got, matched, path, ok)
		}
	})
}

// TestNoTrickRunsAnotherCommand has what a client can write to get past command=.
func TestNoTrickRunsAnotherCommand(t *testing.T) {
	r := rightsOf(t, `command="/nowhere/bin/x a *",command="/nowhere/bin/y",command="/nowhere/bin/z '*' ''"`)
	cfg := LocalConfig{Workspaces: []string{"/nowhere/one", "/nowhere/two"}, Max: wire.SandboxWorkspaceWrite, View: wire.ViewFull, MaxGrace: time.Hour}
	for _, c := range []struct {
		name   string
		argv   string // words, separated by |
		change func(*wire.ExecParams)
		runs   string // empty: it is refused
	}{
		{"by its path", "/nowhere/bin/x|a", nil, "/nowhere/bin/x|a"},
		{"by its last element", "x|a|b|c", nil, "/nowhere/bin/x|a|b|c"},
		{"without words", "y", nil, "/nowhere/bin/y"},
		{"literal star and empty word", "z|*|", nil, "/nowhere/bin/z|*|"},
		{"star is no pattern", "z|b|", nil, ""},
		{"empty word left out", "z|*", nil, ""},
		{"more words than the line has", "y|-c", nil, ""},
		{"empty word more", "y|", nil, ""},
		{"fewer words", "x", nil, ""},
		{"another word", "x|b", nil, ""},
		{"word in another case", "x|A", nil, ""},
		{"two words in one", "x|a b", nil, ""},
		{"all in one word", "/nowhere/bin/x a", nil, ""},
		{"the client's own star", "*", nil, ""},
		{"case", "X|a", nil, ""},
		{"case of the path", "/nowhere/BIN/x|a", nil, ""},
		{"dots", "/nowhere/bin/../bin/x|a", nil, ""},
		{"slashes", "/nowhere/bin//x|a", nil, ""},
		{"trailing slash", "/nowhere/bin/x/|a", nil, ""},
		{"relative", "./x|a", nil, ""},
		{"relative path", "bin/x|a", nil, ""},
		{"another folder", "/nowhere/one/x|a", nil, ""},
		{"env", "/usr/bin/env|/nowhere/bin/x|a", nil, ""},
		{"shell", "sh|-c|x a", nil, ""},
		{"space before", " x|a", nil, ""},
		{"newline after", "x\n|a", nil, ""},
		{"another argv[0]", "x|a", func(p *wire.ExecParams) { p.Arg0 = "y" }, ""},
		{"the same argv[0]", "x|a", func(p *wire.ExecParams) { p.Arg0 = "x" }, ""},
		{"the default folder", "x|a", func(p *wire.ExecParams) { p.Dir = "/nowhere/one" }, "/nowhere/bin/x|a"},
		{"another folder to work in", "x|a", func(p *wire.ExecParams) { p.Dir = "/nowhere/two" }, ""},
		{"a folder in the default one", "x|a", func(p *wire.ExecParams) { p.Dir = "/nowhere/one/a" }, ""},
		{"the default folder with a slash", "x|a", func(p *wire.ExecParams) { p.Dir = "/nowhere/one/" }, ""},
		{"another default by its workspaces", "x|a", func(p *wire.ExecParams) { p.Roots = []string{"/nowhere/two"} }, "/nowhere/bin/x|a"},
		{"LD_PRELOAD", "x|a", func(p *wire.ExecParams) { p.Env = []string{"LD_PRELOAD=secret"} }, ""},
		{"PATH", "x|a", func(p *wire.ExecParams) { p.Env = []string{"TERM=dumb", "PATH=secret"} }, ""},
		{"a variable in lower case", "x|a", func(p *wire.ExecParams) { p.Env = []string{"term=x"} }, ""},
		{"a variable that begins like another", "x|a", func(p *wire.ExecParams) { p.Env = []string{"TERMINFO=/secret"} }, ""},
		{"LOCPATH", "x|a", func(p *wire.ExecParams) { p.Env = []string{"LOCPATH=/secret"} }, ""},
		{"language and terminal", "x|a", func(p *wire.ExecParams) {
			p.Env = []string{"TERM=x", "LANG=C", "LANGUAGE=de", "LC_ALL=C", "TZ=UTC"}
		}, "/nowhere/bin/x|a"},
		{"all variables of the executor", "x|a", func(p *wire.ExecParams) { p.Inherit = wire.InheritAll }, ""},
		{"no variables at all", "x|a", func(p *wire.ExecParams) { p.Inherit = wire.InheritNone }, ""},
		{"a umask for nobody but itself", "x|a", func(p *wire.ExecParams) { p.Umask = 0o077 }, "/nowhere/bin/x|a"},
		{"a umask that lets others write", "x|a", func(p *wire.ExecParams) { p.Umask = 0o002 }, ""},
		{"without PATH", "x|a", func(p *wire.ExecParams) { p.Exclude = []string{"PATH"} }, ""},
	} {
		p := wire.ExecParams{Argv: strings.Split(c.argv, "|")}
		if c.change != nil {
			c.change(&p)
		}
		p, err := p.Normalize()
		if err != nil {
			t.Fatal(err)
		}
		got, err := cfg.gate(r, p)
		switch {
		case c.runs == "" && (wire.CodeOf(err) != wire.CodePolicy || strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), c.argv)):
			t.Errorf("%s: %v, want a refusal that repeats neither words nor values", c.name, err)
		case c.runs != "" && (err != nil || strings.Join(got.Argv, "|") != c.runs || got.Dir != "/nowhere/one"):
			t.Errorf("%s: %v, runs %q in %q", c.name, err, got.Argv, got.Dir)
		}
	}
	if p, err := (wire.ExecParams{Argv: []string{"x", "a\x00b"}}).Normalize(); err == nil {
		t.Errorf("a word with NUL reaches the gate: %q", p.Argv)
	}
}

func TestVariableThatIsRefusedIsNamedWithoutItsValue(t *testing.T) {
	cfg := LocalConfig{Max: wire.SandboxWorkspaceWrite}
	for _, r := range []keys.Rights{restrictedRights, rightsOf(t, "command=/bin/x")} {
		_, err := cfg.gate(r, wire.ExecParams{Argv: []string{"x"}, Inherit: wire.InheritCore, Env: []string{"LANG=C", "FIRST=1234", "SECOND=1"}})
		if wire.CodeOf(err) != wire.CodePolicy || !strings.Contains(err.Error(), `"FIRST"`) || strings.Contains(err.Error(), "1234") || strings.Contains(err.Error(), "SECOND") {
			t.Errorf("%v", err)
		}
	}
}

func TestRestrictedKeyGetsNoTerminal(t *testing.T) {
	cfg := LocalConfig{Max: wire.SandboxWorkspaceWrite}
	asked := wire.ExecParams{Argv: []string{"x"}, Inherit: wire.InheritCore, TTY: &wire.WinSize{}}
	if _, err := cfg.gate(restrictedRights, asked); wire.CodeOf(err) != wire.CodePolicy {
		t.Errorf("a terminal for a restricted key: %v", err)
	}
	withPTY := restrictedRights
	withPTY.Terminal = true
	if p, err := cfg.gate(withPTY, asked); err != nil || p.TTY == nil {
		t.Errorf("a terminal where the line has pty: %v", err)
	}
}

func TestNobodyWithLessThanTheNetworkAndTheFullViewGoesWithoutASandbox(t *testing.T) {
	cfg := LocalConfig{Max: wire.SandboxFullAccess, View: wire.ViewFull}
	for _, c := range []struct {
		network  keys.NetworkCeiling
		fullView bool
		want     wire.SandboxMode
	}{
		{keys.NetworkHost, true, wire.SandboxFullAccess},
		{keys.NetworkAllowList, true, wire.SandboxWorkspaceWrite},
		{keys.NetworkNone, true, wire.SandboxWorkspaceWrite},
		{keys.NetworkHost, false, wire.SandboxWorkspaceWrite},
		{keys.NetworkHost + 1, true, wire.SandboxWorkspaceWrite}, // one that this version does not know
	} {
		r := keys.AllRights()
		r.Network, r.FullView = c.network, c.fullView
		if got := cfg.ceiling(r); got.Sandbox != c.want {
			t.Errorf("network %d, full view %t: %v, want %v", c.network, c.fullView, got.Sandbox, c.want)
		}
	}
}

func TestZeroCallerAndZeroRightsStartNothing(t *testing.T) {
	cfg := LocalConfig{Max: wire.SandboxFullAccess, View: wire.ViewFull}
	for _, c := range []Caller{{}, {Key: "k"}, {Principal: "p", Key: "k"}, {Rights: keys.Rights{AnyCommand: true, Environment: true}}} {
		if _, err := cfg.gate(c.rights(), wire.ExecParams{Argv: []string{"x"}, Inherit: wire.InheritCore, Sandbox: wire.SandboxReadOnly}); wire.CodeOf(err) != wire.CodePolicy {
			t.Errorf("%+v: %v", c, err)
		}
		if c.mayHold("") || c.mayHold("another") {
			t.Errorf("%+v takes over what it did not start", c)
		}
	}
}

func TestWelcomeTellsTheNarrowedModeAndGrace(t *testing.T) {
	cfg := LocalConfig{Max: wire.SandboxFullAccess, MaxGrace: time.Hour}
	for options, want := range map[string]wire.SessionLimits{
		"":                         {Sandbox: uint8(wire.SandboxFullAccess), GraceMillis: 3600_000},
		"sandbox<=read-only":       {Sandbox: uint8(wire.SandboxReadOnly), GraceMillis: 3600_000},
		"network<=none":            {Sandbox: uint8(wire.SandboxWorkspaceWrite), GraceMillis: 3600_000},
		"network<=allow-list":      {Sandbox: uint8(wire.SandboxWorkspaceWrite), GraceMillis: 3600_000},
		"network<=host":            {Sandbox: uint8(wire.SandboxFullAccess), GraceMillis: 3600_000},
		"max-time=1m":              {Sandbox: uint8(wire.SandboxFullAccess), GraceMillis: 60_000},
		"sandbox<=workspace-write": {Sandbox: uint8(wire.SandboxWorkspaceWrite), GraceMillis: 3600_000},
	} {
		got := cfg.limits(rightsOf(t, options))
		if got.Sandbox != want.Sandbox || got.GraceMillis != want.GraceMillis {
			t.Errorf("%q: told %+v, want %+v", options, got, want)
		}
	}
}
