package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/postern-relay/postern/keys"
)

// stateDir is a daemon's folder with its key and lists, made 0700 where it does not exist, and
// locked for as long as the daemon runs.
type stateDir struct {
	path string
	lock *os.File
}

// openState makes and locks a folder. Two daemons on one folder would be two machines with one key.
func openState(path string) (*stateDir, error) {
	if path == "" {
		return nil, errors.New("--state is missing: name the folder for the key and the lists")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := lockFile(f); err != nil {
		f.Close()
		return nil, fmt.Errorf("state folder %s is in use by another postern: %w", path, err)
	}
	return &stateDir{path, f}, nil
}

func (s *stateDir) join(name string) string { return filepath.Join(s.path, name) }

func (s *stateDir) close() { s.lock.Close() }

// openList reads a list of keys. One that does not exist is made empty, with a comment that says
// what belongs there: an empty list admits nobody.
func openList[T any](path, comment string, parse func(string, io.Reader) (T, error)) (*keys.File[T], error) {
	if comment != "" {
		if err := createList(path, comment); err != nil {
			return nil, err
		}
	}
	return keys.WatchFile(path, parse)
}

// createList makes a file with nothing but a comment, unless there is one.
func createList(path, comment string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.WriteString(comment)
	return errors.Join(err, f.Close())
}

// workspaces are existing folders by their real names: the sandbox follows no link.
func workspaces(list []string) ([]string, error) {
	var out []string
	for _, w := range list {
		abs, err := filepath.Abs(w)
		if err == nil {
			abs, err = filepath.EvalSymlinks(abs)
		}
		if err != nil {
			return nil, fmt.Errorf("--workspace %s: %w", w, err)
		}
		if info, err := os.Stat(abs); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--workspace %s is not a folder", w)
		}
		out = append(out, abs)
	}
	return out, nil
}
