package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
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
// concurrently. Close it; one process at a time may use the folder.
type Store struct {
	dir      string
	max      int64
	packSize int64 // what a pack takes at most

	// packing is held while packs change, and guards what is in a pack.
	packing  sync.Mutex
	current  *pack // the one that logs are appended to; nil: the next one begins another
	packFile *recordlog.File
	lastPack int

	mu       sync.Mutex
	used     int64
	freed    chan struct{}    // closed when used falls; nil when nobody waits
	segments map[string][]int // of every log that has files of its own, in order
	packed   map[string]place // every log in a pack
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
	s := &Store{
		dir: dir, max: maxBytes, packSize: min(maxPack, maxBytes/16),
		segments: make(map[string][]int), packed: make(map[string]place),
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var packs []int
	for _, f := range files {
		if n, ok := parsePack(f.Name()); ok && f.Type().IsRegular() {
			packs = append(packs, n)
		}
		name, n, ok := parseSegment(f.Name())
		if !ok || !f.Type().IsRegular() {
			continue
		}
		info, err := f.Info()
		if err != nil {
			return nil, err
		}
		s.used += info.Size()
		s.segments[name] = append(s.segments[name], n)
	}
	for _, numbers := range s.segments {
		slices.Sort(numbers)
	}
	slices.Sort(packs)
	for _, n := range packs {
		if err := s.findPack(n); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close closes the file that small logs are appended to. Logs may be used as before; one that is settled
// afterwards opens a file anew, and Close may be called again.
func (s *Store) Close() error {
	s.packing.Lock()
	defer s.packing.Unlock()
	return s.endPack()
}

// Names are the logs that have files, sorted. Small logs that were removed may be there again after a restart:
// nothing in their file says that they are not wanted.
func (s *Store) Names() ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.AppendSeq(slices.Collect(maps.Keys(s.segments)), maps.Keys(s.packed))
	slices.Sort(names)
	return slices.Compact(names), nil
}

// Remove deletes the files of a log that nobody has: for a Log there is Discard. A log without files is no error.
// What a small log printed stays on the disk until the last one goes that shares its file.
func (s *Store) Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	if err := s.unpack(name); err != nil {
		return err
	}
	for _, n := range s.numbers(name) {
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
		s.unlist(name, n)
	}
	return nil
}

// numbers are those of the segments of a log, in order.
func (s *Store) numbers(name string) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.segments[name])
}

// drop removes a segment of a log that is in use.
func (s *Store) drop(name string, seg *segment) error {
	if seg.number == 0 {
		return s.unpack(name)
	}
	err := os.Remove(seg.path)
	s.unlist(name, seg.number)
	s.release(seg.size)
	return err
}

// unlist forgets a segment.
func (s *Store) unlist(name string, number int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.segments[name], func(n int) bool { return n == number })
	if len(left) == 0 {
		delete(s.segments, name)
	} else {
		s.segments[name] = left
	}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments[name] = append(s.segments[name], number)
	return f, &segment{path: path, number: number, first: after.Seq + 1, last: after.Seq, before: after.Bytes, size: beginSize}, nil
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
