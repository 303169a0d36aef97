package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/postern-relay/postern/keys"
)

// relayFile is what an executor remembers of its relay, in its state folder: what it has joined, and
// the keys that the relay has replaced since. The zero value remembers nothing.
type relayFile struct {
	relay    keys.RelayURL
	name     string
	token    keys.TokenID     // that it has joined with; zero: none
	replaced []keys.PublicKey // earlier keys of the relay
}

const relayFileName = "relay"

const relayFileComment = "# The relay that this executor uses. Written by postern; --relay replaces it.\n"

func readRelayFile(path string) (relayFile, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return relayFile{}, nil
	}
	if err != nil {
		return relayFile{}, err
	}
	var f relayFile
	for i, line := range strings.Split(string(content), "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		word, value, _ := strings.Cut(line, " ")
		err := fmt.Errorf("unknown word %q", word)
		switch word {
		case "relay":
			f.relay, err = keys.ParseRelayURL(value)
		case "name":
			f.name, err = value, checkExecutorName(value)
		case "token":
			f.token, err = keys.ParseTokenID(value)
		case "replaced":
			var key keys.PublicKey
			key, err = keys.ParsePublicKey(value)
			f.replaced = append(f.replaced, key)
		}
		if err != nil {
			return relayFile{}, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	if f.relay == (keys.RelayURL{}) {
		return relayFile{}, fmt.Errorf("%s names no relay: remove it, or restore it from a backup", path)
	}
	return f, nil
}

// write replaces the file in one step.
func (f relayFile) write(path string) error {
	var text strings.Builder
	text.WriteString(relayFileComment)
	fmt.Fprintf(&text, "relay %s\n", f.relay)
	if f.name != "" {
		fmt.Fprintf(&text, "name %s\n", f.name)
	}
	if !f.token.IsZero() {
		fmt.Fprintf(&text, "token %s\n", f.token)
	}
	for _, key := range f.replaced {
		fmt.Fprintf(&text, "replaced %s\n", key)
	}
	return replaceFile(path, text.String())
}

// replaceFile writes a small file of mode 0600, whole or not at all, and brings it to disk.
func replaceFile(path, text string) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	_, err = temp.WriteString(text)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return err
	}
	return syncFolder(filepath.Dir(path))
}

// syncFolder makes renames in a folder durable. Not every system can.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// follow is the relay to use for the one that was given: the same one, under the key that has replaced the given
// one if it did.
func (f relayFile) follow(given keys.RelayURL) keys.RelayURL {
	if f.relay.Host == given.Host && f.relay.Port == given.Port && slices.Contains(f.replaced, given.Key) {
		return f.relay
	}
	return given
}
