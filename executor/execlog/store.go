package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

// Store is a folder of output logs with one quota for all of them. Its methods may be called
// concurrently. It holds nothing open and needs no closing; one process at a time may use the folder.
type Store struct {
	dir string
	max int64

	mu    sync.Mutex
	used  int64
	freed chan struct{}    // closed when used falls; nil when nobody waits
	found map[string][]int // segments that were there at the beginning, of logs that nobody asked for yet
}

// OpenStore opens a folder, and makes it when it is missing, for its owner only. What is in it counts
// towards maxBytes, which must be above zero.
func OpenStore(dir string, maxBytes int64) (*Store, error) {
	if maxBytes <= 0 {
		return nil, fmt.Errorf("output logs: %d bytes in all are no room; give at least 1", maxBytes)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Store{dir: dir, max: maxBytes, found: make(map[string][]int)}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name, n, ok := parseSegment(f.Name())
		if !ok || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		s.used += info.Size()
		s.found[name] = append(s.found[name], n)
	}
	return s, nil
}

// Names are the logs that have files, sorted.
func (s *Store) Names() ([]string, error) {
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		if name, _, ok := parseSegment(f.Name()); ok && f.Type().IsRegular() {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Remove deletes the files of a log that nobody has: for a Log there is Discard. A log without files is no error.
func (s *Store) Remove(name string) error {
	numbers, err := s.take(name)
	if err != nil {
		return err
	}
	for _, n := range numbers {
		path := s.path(name, n)
		info, err := os.Lstat(path)
		if err == nil {
			err = os.Remove(path)
		}
		switch {
		case err == nil:
			s.release(info.Size())
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// take lists the segments of a log, in order. The folder is read once for all logs that were
// there at the beginning.
func (s *Store) take(name string) ([]int, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	s.mu.Lock()
	numbers := s.found[name]
	delete(s.found, name)
	s.mu.Unlock()
	if numbers == nil {
		files, err := os.ReadDir(s.dir)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if of, n, ok := parseSegment(f.Name()); ok && of == name && f.Type().IsRegular() {
				numbers = append(numbers, n)
			}
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// Used is how much the files take, bytes.
func (s *Store) Used() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used
}

// Full reports that there is no room for another segment: the moment to start no
// command that would spill.
func (s *Store) Full() bool { return s.left() < min(16<<20, s.max/16) }

// left is how much more the quota allows; it may be below zero.
func (s *Store) left() int64 { return s.max - s.Used() }

// reserve takes room out of the quota if there is enough.
func (s *Store) reserve(n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n > s.max-s.used {
		return false
	}
	s.used += n
	return true
}

// unreserve gives room back that was not used. It wakes nobody, or logs whose disk fails would wake
// themselves and each other without end.
func (s *Store) unreserve(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
}

// release gives the room of a file back.
func (s *Store) release(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= n
	wakeAll(&s.freed)
}

// wake is closed when room is given back.
func (s *Store) wake() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return waitFor(&s.freed)
}

// begin makes a segment whose first chunk comes after a place.
func (s *Store) begin(name string, number int, epoch wire.ID, after Position) (*recordlog.File, *segment, error) {
	if err := checkName(name); err != nil {
		return nil, nil, err
	}
	path := s.path(name, number)
	f, err := recordlog.Create(path)
	if err != nil {
		return nil, nil, err
	}
	if _, err := f.Append(encodeBegin(epoch, after.Seq+1, after.Bytes)); err != nil {
		f.Close()
		os.Remove(path)
		return nil, nil, err
	}
	return f, &segment{path: path, first: after.Seq + 1, last: after.Seq, before: after.Bytes, size: beginSize}, nil
}

func (s *Store) path(name string, n int) string {
	return filepath.Join(s.dir, fmt.Sprintf("%s.%06d", name, n))
}

// parseSegment takes a file's name apart. Only names that path makes are ok.
func parseSegment(file string) (name string, n int, ok bool) {
	name, digits, _ := strings.Cut(file, ".")
	n, err := strconv.Atoi(digits)
	return name, n, err == nil && n > 0 && digits == fmt.Sprintf("%06d", n) && checkName(name) == nil
}

func checkName(name string) error {
	if name == "" || len(name) > 200 || strings.Trim(name, "0123456789abcdef-") != "" {
		return fmt.Errorf("output log %q: a name has digits, a to f and hyphens", name)
	}
	return nil
}
