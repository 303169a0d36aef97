package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/postern-relay/postern/executor/recordlog"
)

const (
	// maxPacked is what a log may take in a pack, with framing: what has to be read for any part of it.
	maxPacked = 64 << 10
	// maxPack bounds a pack: it goes as a whole, when the last of its logs goes.
	maxPack = 16 << 20
)

// pack is a file of small logs.
type pack struct {
	path string
	size int64
	live int // logs in it that were not removed
}

// place is where a log is in a pack. There is one for each log in memory, so it is small.
type place struct {
	pack         *pack
	offset, size uint32
}

// pack appends a log as one record, with its quota. What fails leaves nothing behind.
func (s *Store) pack(name string, payload []byte) (place, error) {
	if err := checkName(name); err != nil {
		return place{}, err
	}
	s.packing.Lock()
	defer s.packing.Unlock()
	if _, ok := s.packedAt(name); ok {
		return place{}, fmt.Errorf("output log %s: there is another one of this name", name)
	}
	size := frame + int64(len(payload))
	if s.current != nil && s.current.size+size > s.packSize {
		if err := s.endPack(); err != nil {
			return place{}, err
		}
	}
	if s.current == nil {
		if err := s.beginPack(size); err != nil {
			return place{}, err
		}
	} else if !s.reserve(size) {
		return place{}, errNoRoom
	}
	offset, err := s.packFile.Append(payload)
	if err != nil {
		s.unreserve(size)
		return place{}, errors.Join(err, s.endPack())
	}
	at := place{s.current, uint32(offset), uint32(size)}
	s.current.size += size
	s.current.live++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.packed[name] = at
	return at, nil
}

// packedAt is where a log is in the packs.
func (s *Store) packedAt(name string) (place, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, ok := s.packed[name]
	return at, ok
}

// beginPack makes a pack, with room for a first record.
func (s *Store) beginPack(size int64) error {
	size += recordlog.Begin
	if !s.reserve(size) {
		return errNoRoom
	}
	path := filepath.Join(s.dir, fmt.Sprintf("pack.%06d", s.lastPack+1))
	f, err := recordlog.Create(path)
	if err != nil {
		s.unreserve(size)
		return err
	}
	s.lastPack++
	s.current, s.packFile = &pack{path: path, size: recordlog.Begin}, f
	return nil
}

// endPack closes the pack that records are appended to; the next one begins another.
func (s *Store) endPack() error {
	if s.current == nil {
		return nil
	}
	p, err := s.current, s.packFile.Close()
	s.current, s.packFile = nil, nil
	return errors.Join(err, s.dropPack(p))
}

// unpack forgets what a log has in a pack.
func (s *Store) unpack(name string) error {
	s.packing.Lock()
	defer s.packing.Unlock()
	s.mu.Lock()
	old := s.packed[name]
	delete(s.packed, name)
	none := len(s.packed) == 0
	s.mu.Unlock()
	err := s.leavePack(old.pack)
	if none && s.current != nil {
		err = errors.Join(err, s.endPack())
	}
	return err
}

// leavePack counts a log out of a pack, nil: of none.
func (s *Store) leavePack(p *pack) error {
	if p == nil {
		return nil
	}
	if p.live--; p == s.current {
		return nil // there will be more in it
	}
	return s.dropPack(p)
}

// dropPack removes a pack that is not appended to if no log is in it.
func (s *Store) dropPack(p *pack) error {
	if p.live > 0 {
		return nil
	}
	err := os.Remove(p.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		s.release(p.size)
	}
	return err
}

// findPack reads a pack of an earlier Store, cuts it behind its last whole record, and lists what is in it. Of
// two records of one name the later one is right: the other log was removed. No other method runs yet.
func (s *Store) findPack(number int) error {
	s.lastPack = max(s.lastPack, number)
	p := &pack{path: filepath.Join(s.dir, fmt.Sprintf("pack.%06d", number))}
	f, err := os.OpenFile(p.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	s.used += info.Size()
	p.size = recordlog.Begin
	_, err = recordlog.Scan(f, recordlog.Begin, min(info.Size(), maxPack), func(offset int64, payload []byte) (bool, error) {
		record, ok := decodePacked(payload)
		if !ok {
			return false, nil
		}
		old := s.packed[record.name]
		at := place{p, uint32(offset), uint32(frame + len(payload))}
		s.packed[record.name] = at
		p.live++
		p.size += int64(at.size)
		return true, s.leavePack(old.pack)
	})
	if err != nil {
		return err
	}
	if p.live == 0 {
		p.size = info.Size() // all of it goes
	}
	if cut := info.Size() - p.size; cut > 0 {
		if err := f.Truncate(p.size); err != nil {
			return err
		}
		s.release(cut)
	}
	return s.dropPack(p)
}

// parsePack takes the name of a pack apart. No log can have one like it.
func parsePack(file string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(file, "pack.")
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n > 0 && digits == fmt.Sprintf("%06d", n)
}
