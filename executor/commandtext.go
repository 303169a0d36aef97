package executor

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

const maxCommandText = 200 // bytes

// commandText is argv for people who look at a list: one line, quoted where it must be, shortened.
func commandText(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if b.Len() > maxCommandText {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		word = word[:min(len(word), maxCommandText)]
		if needsQuotes(word) {
			word = strconv.Quote(word)
		}
		b.WriteString(word)
	}
	s := b.String()
	if len(s) > maxCommandText {
		s = strings.ToValidUTF8(s[:maxCommandText], "") + "..."
	}
	return s
}

func needsQuotes(word string) bool {
	special := func(r rune) bool { return r <= ' ' || r == 0x7f || strings.ContainsRune("\"'\\$&;|<>()*?`", r) }
	return word == "" || !utf8.ValidString(word) || strings.ContainsFunc(word, special)
}
