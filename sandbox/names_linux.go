package sandbox

import "strings"

// Where names are in a line of text. Package regexp would say the same in fewer lines, but it is initialized late in a large program,
// and all of this package with it, whose helpers each command waits for.

// span is line[from:to].
type span struct{ from, to int }

// quotedNames are what is in quotes, in the forms that programs use, and is not empty.
func quotedNames(line string) (found []span) {
	for i := 0; i < len(line); {
		from, length := i+1, -1
		switch rest := line[from:]; {
		case line[i] == '\'' || line[i] == '"':
			length = strings.IndexByte(rest, line[i])
		case line[i] == '`':
			length = strings.IndexAny(rest, "'`")
		case strings.HasPrefix(line[i:], "‘"):
			from = i + len("‘")
			length = strings.Index(line[from:], "’")
		}
		if length <= 0 {
			i++
			continue
		}
		found = append(found, span{from, from + length})
		i = from + length + 1
		if strings.HasPrefix(line[i-1:], "’") {
			i += len("’") - 1
		}
	}
	return found
}

const (
	beforePath = "\t\n\f\r :=(,[>"
	afterPath  = "\t\n\f\r '\"`:;,()[]<>"
)

// absolutePaths are the plain ones: at the beginning, or behind what separates words.
func absolutePaths(line string) (found []span) {
	for i := 0; i < len(line); {
		from := i
		if i > 0 || line[0] != '/' {
			if from++; strings.IndexByte(beforePath, line[i]) < 0 {
				i++
				continue
			}
		}
		to := from
		if from < len(line) && line[from] == '/' {
			if to = strings.IndexAny(line[from:], afterPath); to < 0 {
				to = len(line) - from
			}
			to += from
		}
		if to <= from+1 {
			i++
			continue
		}
		found = append(found, span{from, to})
		i = to
	}
	return found
}

// plainText is a line without the sequences with which a terminal is told of colours, positions and titles.
func plainText(line string) string {
	at := strings.IndexByte(line, 0x1b)
	if at < 0 {
		return line
	}
	var b strings.Builder
	for at >= 0 {
		b.WriteString(line[:at])
		line = line[at:]
		n := sequence(line)
		if n == 0 { // an escape of another kind stays
			b.WriteByte(line[0])
			n = 1
		}
		line = line[n:]
		at = strings.IndexByte(line, 0x1b)
	}
	b.WriteString(line)
	return b.String()
}

// sequence is the length of that with which s begins, whose first byte is an escape; zero for none.
func sequence(s string) int {
	if len(s) < 3 {
		return 0
	}
	switch s[1] {
	case '[':
		i := 2
		for i < len(s) && strings.IndexByte("0123456789;?", s[i]) >= 0 {
			i++
		}
		if i < len(s) && isLetter(s[i]) {
			return i + 1
		}
	case ']':
		switch i := strings.IndexAny(s[2:], "\x07\x1b"); {
		case i < 0:
		case s[2+i] == 0x07:
			return 2 + i + 1
		case strings.HasPrefix(s[2+i:], "\x1b\\"):
			return 2 + i + 2
		}
	case '(', ')':
		if isLetter(s[2]) || '0' <= s[2] && s[2] <= '9' {
			return 3
		}
	}
	return 0
}

func isLetter(c byte) bool { return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' }
