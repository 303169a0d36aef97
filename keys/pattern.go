package keys

import (
	"errors"
	"strings"
)

// wildcard stands in a pattern for one or more characters of a name.
const wildcard = "*"

// CheckPattern refuses what is no pattern of names: a name as a peer may have it, in which one * at most stands for 1 or more
// characters. The empty pattern is refused; the one that every name matches is "*".
func CheckPattern(pattern string) error {
	if strings.Count(pattern, wildcard) > 1 {
		return errors.New("pattern has more than one *: want a name with one * at most")
	}
	// What a * stands for is at least one character, and a letter fits everywhere.
	return checkName(strings.Replace(pattern, wildcard, "a", 1))
}

// MatchName reports whether name is one that a peer may have and pattern allows. What [CheckPattern] refuses matches nothing.
func MatchName(pattern, name string) bool {
	if CheckPattern(pattern) != nil || checkName(name) != nil {
		return false
	}
	head, tail, open := strings.Cut(pattern, wildcard)
	if !open {
		return name == pattern
	}
	return len(name) > len(head)+len(tail) && strings.HasPrefix(name, head) && strings.HasSuffix(name, tail)
}
