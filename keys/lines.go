package keys

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits on a trust file, checked before anything is made of its content.
const (
	maxFileSize = 16 << 20 // room for 50,000 enrolled executors, at some 300 bytes each
	maxLineSize = 8 << 10
	maxName     = 64 // bytes of a name that programs use: an alias, a peer's name
)

// readLimited reads a whole trust file, or fails once it is larger than maxFileSize.
func readLimited(name string, r io.Reader) ([]byte, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxFileSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(content) > maxFileSize {
		return nil, fmt.Errorf("%s is larger than %d bytes", name, maxFileSize)
	}
	return content, nil
}

// eachLine calls use for every line of r that is neither blank nor a # comment, without its line end and outer space. The
// first error ends it and gets the place: "name:line: ...".
func eachLine(name string, r io.Reader, use func(number int, line string) error) error {
	return eachLineUpTo(maxLineSize, name, r, use)
}

// eachLineUpTo is eachLine for lines of another size, in bytes.
func eachLineUpTo(maxLine int, name string, r io.Reader, use func(number int, line string) error) error {
	content, err := readLimited(name, r)
	if err != nil {
		return err
	}
	number := 0
	for raw := range bytes.Lines(content) {
		number++
		err := checkLine(raw, maxLine)
		if err == nil {
			line := strings.Trim(string(raw), " \t\r\n")
			if line == "" || line[0] == '#' {
				continue
			}
			err = use(number, line)
		}
		if err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	return nil
}

// checkLine refuses what could hide content from a reader or forge a log line: control characters, broken or invisible
// Unicode, endless lines. A final CR is the line end of another system.
func checkLine(raw []byte, maxLine int) error {
	raw = bytes.TrimSuffix(bytes.TrimSuffix(raw, []byte("\n")), []byte("\r"))
	if len(raw) > maxLine {
		return fmt.Errorf("line is longer than %d bytes", maxLine)
	}
	if !utf8.Valid(raw) {
		return errors.New("line is not UTF-8")
	}
	for _, r := range string(raw) {
		if r != '\t' && !unicode.IsPrint(r) {
			return fmt.Errorf("line has the unprintable character %U", r)
		}
	}
	return nil
}

// fields splits at spaces and tabs.
func fields(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
}

// cutField returns the first field and what follows the space after it.
func cutField(line string) (field, rest string) {
	if i := strings.IndexAny(line, " \t"); i >= 0 {
		return line[:i], strings.TrimLeft(line[i:], " \t")
	}
	return line, ""
}

// checkName accepts names that can be typed, logged and used as a label without quoting.
func checkName(name string) error {
	const want = "want 1 to 64 letters, digits, dots, hyphens or underscores, a letter or digit first"
	if len(name) < 1 || len(name) > maxName {
		return errors.New("name has a wrong length: " + want)
	}
	if isSecretText(name) {
		return errors.New("there is a secret where a name belongs: replace the key or the join token, others may have seen it")
	}
	for i, c := range []byte(name) {
		alnum := isLower(c) || isDigit(c) || 'A' <= c && c <= 'Z'
		if !alnum && (i == 0 || c != '.' && c != '-' && c != '_') {
			return errors.New("name has a character that is not allowed: " + want)
		}
	}
	return nil
}

// parseKeyOf parses a key and wants one of the given kind.
func parseKeyOf(kind Kind, text string) (PublicKey, error) {
	key, err := ParsePublicKey(text)
	if err != nil {
		return PublicKey{}, err
	}
	if key.Kind() != kind {
		return PublicKey{}, fmt.Errorf("this is %s key; %s is wanted here", key.Kind().noun(), kind.noun())
	}
	return key, nil
}
