package keys

import (
	"bytes"
	"errors"
	"fmt"
)

// AddKnownExecutor adds a line to a client's known_executors, or creates the file with mode 0600; its folder must exist. The
// file is replaced in one step and keeps its other lines, comments, mode and owner. An alias that already stands for the same
// key and relay is left as it is; one that stands for anything else is an error, because only a person may change whom a name
// means. A file that does not parse is left alone. It is safe for concurrent use, and on Unix by several processes.
func AddKnownExecutor(path string, e KnownExecutor) error {
	line, err := knownLine(e)
	if err != nil {
		return fmt.Errorf("add executor %.64q to %s: %w", e.Alias, path, err)
	}
	return addLine(path, line, ParseKnownExecutors, func(known *KnownExecutors) (bool, error) {
		old, taken := known.Lookup(e.Alias)
		switch {
		case !taken:
			return false, nil
		case old.Key != e.Key:
			return false, fmt.Errorf("alias %q already stands for another key, %s: remove that line by hand if the new key is right", e.Alias, old.Key)
		case old.Relay != e.Relay:
			return false, fmt.Errorf("alias %q already uses the relay %s: change that line by hand, or choose another alias", e.Alias, old.Relay)
		}
		return true, nil
	})
}

// AddAuthorizedClient adds a line without options to an executor's authorized_clients, in the manner of [AddKnownExecutor].
// The name may be empty. A key that is listed already is left as it is, whatever its options, when the name is the same, and
// an error when it is not.
func AddAuthorizedClient(path string, key PublicKey, name string) error {
	line := key.String()
	if name != "" {
		line += " " + name
	}
	parsed, err := ParseAuthorizedClients("line", bytes.NewReader([]byte(line)))
	if err != nil || len(parsed.list) != 1 || parsed.list[0].Key != key || parsed.list[0].Name != name {
		return fmt.Errorf("add client %s to %s: %w", key.Short(), path, orMalformed(err))
	}
	return addLine(path, line, ParseAuthorizedClients, func(clients *AuthorizedClients) (bool, error) {
		old, listed := clients.Lookup(key)
		if listed && old.Name != name {
			return false, fmt.Errorf("key %s is already on line %d under the name %q", key.Short(), old.Line, old.Name)
		}
		return listed, nil
	})
}

// orMalformed is for an entry that forms a valid line, but not its own.
func orMalformed(err error) error {
	if err == nil {
		return errors.New("the entry is empty, or a field holds a space or a line end")
	}
	return err
}

// addLine appends line to the file at path unless present says that it is there already.
func addLine[T any](path, line string, parse parser[T], present func(T) (bool, error)) error {
	return rewrite(path, parse, func(content []byte, parsed T) ([]byte, error) {
		there, err := present(parsed)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if there {
			return nil, nil
		}
		return appendLine(content, line), nil
	})
}
