package keys

import (
	"fmt"
	"strings"
)

// The functions in this file change a client's known_executors in the manner of [AddKnownExecutor]: in one step, under the
// lock, and without touching another line. All return an error that matches [ErrNotListed], or change nothing, when what they
// look for is not there (any more).

// RemoveKnownExecutor removes the line of an alias.
func RemoveKnownExecutor(path, alias string) error {
	return rewrite(path, ParseKnownExecutors, func(content []byte, known *KnownExecutors) ([]byte, error) {
		place, found := known.byAlias[alias]
		if !found {
			return nil, fmt.Errorf("%s: alias %.64q: %w", path, alias, ErrNotListed)
		}
		return withoutLine(content, known.lines[place]), nil
	})
}

// ReplaceKnownExecutor puts next in the place of old. A line that has the alias of old but another key or relay is another
// line: it stays, and the error matches [ErrNotListed].
func ReplaceKnownExecutor(path string, old, next KnownExecutor) error {
	line, err := knownLine(next)
	if err != nil {
		return fmt.Errorf("replace executor %.64q in %s: %w", old.Alias, path, err)
	}
	return rewrite(path, ParseKnownExecutors, func(content []byte, known *KnownExecutors) ([]byte, error) {
		if found, ok := known.Lookup(old.Alias); !ok || found != old {
			return nil, fmt.Errorf("%s: alias %.64q with this key and relay: %w", path, old.Alias, ErrNotListed)
		}
		return withLine(content, known.lines[known.byAlias[old.Alias]], line), nil
	})
}

// ReplaceKnownKey puts the key next in the place of old and returns how many lines that changed, which may be none. A key of
// the kind [Executor] is replaced under every alias, one of the kind [Relay] in the URL of every line; the two must be of one
// kind.
func ReplaceKnownKey(path string, old, next PublicKey) (changed int, err error) {
	if kind := old.Kind(); kind != next.Kind() || kind != Executor && kind != Relay {
		return 0, fmt.Errorf("replace %s key by %s key in %s: want two executor's or two relay's keys", old.Kind().noun(), next.Kind().noun(), path)
	}
	err = rewrite(path, ParseKnownExecutors, func(content []byte, known *KnownExecutors) ([]byte, error) {
		edited := make(map[int]string)
		for i, executor := range known.list {
			switch old {
			case executor.Key:
				executor.Key = next
			case executor.Relay.Key:
				executor.Relay.Key = next
			default:
				continue
			}
			line, err := knownLine(executor)
			if err != nil {
				return nil, fmt.Errorf("%s:%d: %w", path, known.lines[i], err)
			}
			edited[known.lines[i]] = line
		}
		changed = len(edited)
		if changed == 0 {
			return nil, nil
		}
		return editLines(content, func(number int, line []byte) []byte {
			if text, ok := edited[number]; ok {
				return []byte(text + lineEnd(line))
			}
			return line
		}), nil
	})
	if err != nil {
		return 0, err
	}
	return changed, nil
}

// knownLine writes an executor as its line, without the line end, and refuses what would not be read as the same.
func knownLine(e KnownExecutor) (string, error) {
	line := strings.Join([]string{e.Alias, e.Key.String(), e.Relay.String()}, " ")
	if parsed, err := parseKnownExecutor(line); err != nil || parsed != e {
		return "", orMalformed(err)
	}
	return line, nil
}
