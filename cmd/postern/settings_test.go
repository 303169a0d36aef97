package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// daemonFlags are some flags of every kind.
func daemonFlags() (f *pflag.FlagSet, one, two *string, several *[]string, on *bool) {
	f = pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	one, two = f.String("one", "default", ""), f.String("two-words", "default", "")
	several, on = f.StringArray("several", nil, ""), f.Bool("on", false, "")
	f.String("config", "", "")
	return f, one, two, several, on
}

func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "settings")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCommandLineGoesBeforeEnvironmentBeforeFile(t *testing.T) {
	t.Parallel()
	file := settingsFile(t, "# all of them\none file\n two-words  from the file \nseveral /f1\nseveral /f2\non true\n")
	for _, c := range []struct {
		name        string
		args        []string
		environment map[string]string
		one, two    string
		several     string
	}{
		{"nothing but the file", nil, nil, "file", "from the file", "/f1 /f2"},
		{"environment", nil, map[string]string{"POSTERN_ONE": "env", "POSTERN_SEVERAL": "/e1:/e2"}, "env", "from the file", "/e1 /e2"},
		{"an empty variable is none", nil, map[string]string{"POSTERN_ONE": ""}, "file", "from the file", "/f1 /f2"},
		{"command line", []string{"--one=flag", "--several=/c"}, map[string]string{"POSTERN_ONE": "env", "POSTERN_TWO_WORDS": "env", "POSTERN_SEVERAL": "/e"}, "flag", "env", "/c"},
		{"a default on the command line", []string{"--one=default"}, nil, "default", "from the file", "/f1 /f2"},
	} {
		f, one, two, several, on := daemonFlags()
		if err := f.Parse(append(c.args, "--config", file)); err != nil {
			t.Fatal(err)
		}
		if err := applySettings(f, func(name string) (string, bool) { v, ok := c.environment[name]; return v, ok }); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if *one != c.one || *two != c.two || strings.Join(*several, " ") != c.several || !*on {
			t.Errorf("%s: %q, %q, %q, %v", c.name, *one, *two, *several, *on)
		}
	}
}

func TestSettingThatMakesNoSenseIsNamedWithItsPlace(t *testing.T) {
	t.Parallel()
	none := func(string) (string, bool) { return "", false }
	for _, c := range []struct{ name, text, want string }{
		{"unknown", "\nnone such", `:2: unknown setting "none"`},
		{"itself", "config other", `:1: unknown setting "config"`},
		{"twice", "one a\none b", ":2: one is given twice"},
		{"no value", "on", ":1: setting without a value"},
		{"wrong value", "on perhaps", ":1: "},
	} {
		f, _, _, _, _ := daemonFlags()
		if err := f.Parse([]string{"--config", settingsFile(t, c.text)}); err != nil {
			t.Fatal(err)
		}
		if err := applySettings(f, none); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
	f, _, _, _, _ := daemonFlags()
	if err := applySettings(f, func(name string) (string, bool) { return "perhaps", name == "POSTERN_ON" }); err == nil || !strings.Contains(err.Error(), "POSTERN_ON") {
		t.Errorf("a wrong variable: %v", err)
	}
	f, _, _, _, _ = daemonFlags()
	if err := f.Parse([]string{"--config", t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	if err := applySettings(f, none); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("a folder of settings: %v", err)
	}
}

func TestChangedSettingsAreNamedOnce(t *testing.T) {
	t.Parallel()
	parse := func(text string) []setting {
		list, err := parseSettings("settings", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := parse("a 1\nb 2\nc 3\nc 4\n")
	for text, want := range map[string][]string{
		"a 1\nb 2\nc 3\nc 4":              nil,
		"# moved\nb 2\na 1\nc 3\nc 4":     nil,
		"a 9\nb 2\nc 3\nc 4":              {"a"},
		"b 2\nc 3":                        {"a", "c"},
		"a 1\nb 2\nc 4\nc 3\nd 5":         {"c", "d"},
		"a 1\nb 2\nc 3\nc 4\nlog-level x": {"log-level"},
	} {
		if got := changedSettings(before, parse(text)); !slices.Equal(got, want) {
			t.Errorf("%q: changed %q, want %q", text, got, want)
		}
	}
}

func FuzzParseSettings(f *testing.F) {
	for _, text := range []string{"", "a b", "# c\n\n  a   b c \n", "a", "a\tb", "\x00 \xff", "a b\na b"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseSettings("settings", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, s := range list {
			if s.name == "" || s.value == "" || strings.ContainsAny(s.name, " \n") || s.line < 1 {
				t.Errorf("%q has the setting %+v", text, s)
			}
		}
	})
}
