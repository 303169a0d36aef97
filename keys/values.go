package keys

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// lastSecond is the last one that RFC 3339 can write.
const lastSecond = 253402300799

// setters says what the options that may end a line do with their values.
type setters map[string]func(value string) error

// readOptions applies the words NAME=VALUE, in any order. An option that is not known is an error, as is one that is given
// twice and not among the repeatable. Its errors repeat no value, since a mistyped line may hold a secret.
func readOptions(words []string, known setters, repeatable ...string) error {
	seen := make(map[string]bool, len(words))
	for _, word := range words {
		name, value, isOption := strings.Cut(word, "=")
		if !isOption {
			return errors.New("line has a word too many: after the name only options may follow, as NAME=VALUE")
		}
		set := known[name]
		if set == nil {
			if head, rest := cutWhile(name, isLower); rest != "" || len(head) > maxOptionName {
				return errors.New("line has an unknown option")
			}
			return fmt.Errorf("unknown option %q: nothing in this file is in force until it is removed", name)
		}
		if seen[name] && (len(repeatable) == 0 || repeatable[0] != name) {
			return fmt.Errorf("option %q is given twice", name)
		}
		seen[name] = true
		if err := set(value); err != nil {
			return fmt.Errorf("option %q: %w", name, err)
		}
	}
	return nil
}

// numberInto stores a decimal number from low to high, in its only spelling.
func numberInto[N int | int64](dst *N, low, high N) func(string) error {
	return func(value string) error {
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil || strconv.FormatInt(number, 10) != value || number < int64(low) || number > int64(high) {
			return fmt.Errorf("want a number from %d to %d", low, high)
		}
		*dst = N(number)
		return nil
	}
}

// hexInto stores 64 lower-case hex digits.
func hexInto(dst *[32]byte) func(string) error {
	return func(value string) error {
		if err := decodeHex(dst[:], value); err != nil {
			return errors.New("want 64 lower-case hex digits")
		}
		return nil
	}
}

// keyInto stores a key of the kind.
func keyInto(dst *PublicKey, kind Kind) func(string) error {
	return func(value string) error {
		key, err := parseKeyOf(kind, value)
		*dst = key
		return err
	}
}

// patternInto stores a pattern of names.
func patternInto(dst *string) func(string) error {
	return func(value string) error {
		*dst = value
		return CheckPattern(value)
	}
}

// timeInto stores a time as [formatTime] writes it.
func timeInto(dst *time.Time) func(string) error {
	return func(value string) error {
		at, err := time.Parse(time.RFC3339, value)
		if err != nil || formatTime(at) != value || checkTime(at) != nil {
			return errors.New("want a time in UTC, as 2026-12-01T00:00:00Z")
		}
		*dst = at.UTC()
		return nil
	}
}

// checkTime refuses times that a file or a token cannot hold.
func checkTime(at time.Time) error {
	if at.Unix() < 1 || at.Unix() > lastSecond {
		return errors.New("time is not between the years 1970 and 9999")
	}
	return nil
}

// formatTime writes whole seconds in UTC.
func formatTime(at time.Time) string { return at.UTC().Format(time.RFC3339) }
