package sandbox

import (
	"regexp"
	"slices"
	"testing"
)

// What names_linux.go looks for, in another notation.
var (
	inQuotes  = regexp.MustCompile("'([^']+)'|\"([^\"]+)\"|`([^`']+)['`]|‘([^’]+)’")
	absolute  = regexp.MustCompile(`(?:^|[\s:=(,\[>])(/[^\s'"` + "`" + `:;,()\[\]<>]+)`)
	sequences = regexp.MustCompile("\x1b(?:\\[[0-9;?]*[A-Za-z]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|[()][0-9A-Za-z])")
)

func spansOf(pattern *regexp.Regexp, line string) (found []span) {
	for _, m := range pattern.FindAllStringSubmatchIndex(line, -1) {
		for g := 2; g < len(m); g += 2 {
			if m[g] >= 0 {
				found = append(found, span{m[g], m[g+1]})
			}
		}
	}
	return found
}

func FuzzNamesAreFoundAsByRegularExpressions(f *testing.F) {
	for _, line := range []string{
		"", "/", "//", "/a", " /a", "a /a/b:/c=/d", "=/a=/b c", "open '/etc/x': no", "''", "'' 'a'", "`a' `b` ``c`", "‘a’ ‘’ ‘b’c’", "‘\xff’ /\xe2\x80 x",
		"ls: cannot open ‘/root’: Permission denied", "[/a] (/b) </c> >/d ,/e;/f", "\"a 'b\" c'", "'a\"b' \"", "a'b", "\x1b[1;31m/a\x1b[0m b", "\x1b]0;t\x07x\x1b]0;t\x1b\\y",
		"\x1b(B\x1b)0\x1b=\x1b", "\x1b[", "\x1b]0;\x1b[m", "\x1b\x1b[m", "\x1b[?25l\x1b[999999", "\v/a\f/b",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if got, want := quotedNames(line), spansOf(inQuotes, line); !slices.Equal(got, want) {
			t.Errorf("in quotes in %q: %v, want %v", line, got, want)
		}
		if got, want := absolutePaths(line), spansOf(absolute, line); !slices.Equal(got, want) {
			t.Errorf("absolute in %q: %v, want %v", line, got, want)
		}
		if got, want := plainText(line), sequences.ReplaceAllString(line, ""); got != want {
			t.Errorf("plain text of %q: %q, want %q", line, got, want)
		}
	})
}
