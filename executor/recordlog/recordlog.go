// Package recordlog is a file of records that is only ever appended to, and survives a crash: a
// record is there whole or not at all.
//
// On disk the file begins with eight bytes of magic. A record is
//
//	u32 length of the payload | u32 CRC-32C of length and payload | payload
//
// with big-endian numbers and a length of at least one, so that a tail of zeros, as a
// file system may leave after a power failure, is no record.
//
// It knows nothing of what records mean: the executor's journal and its output logs do.
package recordlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
)

// MaxRecord bounds a payload, bytes. What claims to be longer is damage.
const MaxRecord = 1 << 20

const (
	magic  = "pstnlog1"
	header = 8
)

// Begin is the offset of the first record.
const Begin = int64(len(magic))

// castagnoli takes a quarter of a millisecond to make, which no process should spend that writes no records.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// File is an open file of records. Append and Sync may be called concurrently. Close it.
type File struct {
	file *os.File

	mu      sync.Mutex
	done    sync.Cond // a sync has ended
	size    int64
	ahead   int64 // how much room to make at a time
	room    int64 // the file's length: zeros behind size
	synced  int64 // how much of it is known to be on the disk
	syncing bool
	broken  error // nothing is accepted any more
	buf     []byte
}

// Create makes an empty file, readable for its owner only. It must not exist.
func Create(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteString(magic); err != nil {
		f.Close()
		os.Remove(path)
		return nil, err
	}
	return newFile(f, Begin), nil
}

func newFile(f *os.File, size int64) *File {
	l := &File{file: f, size: size, room: size}
	l.done.L = &l.mu
	return l
}

// MakeRoom lets the file grow by this many bytes of zeros at a time, ahead of the records, so that
// a Sync has only data to write: a new length would make it wait for everything that
// the file system has under way. Call it before the first Append.
func (f *File) MakeRoom(step int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead = step
}

// DamagedError says that records follow something that is none. That is no torn tail: what was
// written long ago has changed, or the file is not one of ours.
type DamagedError struct {
	Path   string
	Offset int64 // of the first byte that makes no sense
}

// Error names the file and the place.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d", e.Path, e.Offset)
}

// Open opens an existing file for appending, after it has shown every record to visit, which
// must not keep the payload. A record that was torn by a crash is cut off, and how many bytes
// that were is returned. Where whole records follow the bad one the file is left as it is, and the error
// is a *DamagedError.
func Open(path string, visit func(offset int64, payload []byte) error) (f *File, cut int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	size := info.Size()
	head := make([]byte, Begin)
	if _, err := file.ReadAt(head, 0); err != nil && err != io.EOF {
		return nil, 0, err
	}
	if string(head) != magic {
		if err := restart(file, size); err != nil {
			return nil, 0, errors.Join(&DamagedError{path, 0}, err)
		}
		return newFile(file, Begin), size, nil
	}
	end, err := Scan(file, Begin, size, func(offset int64, payload []byte) (bool, error) { return true, visit(offset, payload) })
	if err != nil {
		return nil, 0, err
	}
	used, err := lastByte(file, end, size)
	if err != nil {
		return nil, 0, err
	}
	if used > end {
		follows, err := recordFollows(file, end, size)
		if err != nil {
			return nil, 0, err
		}
		if follows {
			return nil, 0, &DamagedError{path, end}
		}
	}
	if end < size { // also where it is only room: nobody says that there will be as much use for it
		if err := file.Truncate(end); err != nil {
			return nil, 0, err
		}
	}
	if err := syncData(file); err != nil {
		return nil, 0, err
	}
	f = newFile(file, end)
	f.synced = end
	return f, used - end, nil
}

// restart makes a file anew whose making was torn: it holds a part of the magic, or zeros.
func restart(file *os.File, size int64) error {
	if size > MaxRecord {
		return errors.New("not a file of records")
	}
	b := make([]byte, size)
	if _, err := file.ReadAt(b, 0); err != nil && err != io.EOF {
		return err
	}
	for i, c := range b {
		if c != 0 && (i >= len(magic) || c != magic[i]) {
			return errors.New("not a file of records")
		}
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err := file.WriteAt([]byte(magic), 0)
	return err
}

// Scan shows the records between two offsets to visit until it wants no more, and returns the
// offset behind the last whole one. What is not whole ends it without an error.
func Scan(r io.ReaderAt, from, to int64, visit func(offset int64, payload []byte) (more bool, err error)) (end int64, err error) {
	if to < from {
		return from, nil
	}
	in := newReader(r, from, to)
	for at := from; ; {
		payload, ok, err := in.next()
		if err != nil || !ok {
			return at, err
		}
		more, err := visit(at, payload)
		if err != nil {
			return at, err
		}
		at += header + int64(len(payload))
		if !more {
			return at, nil
		}
	}
}

// Append adds one record made of the parts, and returns its offset. The record is safe from a
// crash of this process; only Sync makes it safe from a crash of the machine.
func (f *File) Append(parts ...[]byte) (offset int64, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken != nil {
		return 0, f.broken
	}
	b := append(f.buf[:0], make([]byte, header)...)
	for _, p := range parts {
		b = append(b, p...)
	}
	f.buf = b
	if cap(b) > 1<<16 {
		f.buf = nil // one large record must not hold memory for ever
	}
	n := len(b) - header
	if n == 0 || n > MaxRecord {
		return 0, fmt.Errorf("record of %d bytes: want 1 to %d", n, MaxRecord)
	}
	seal(b)
	if end := f.size + int64(len(b)); f.ahead > 0 && end > f.room {
		// Without room the record is still durable, only later.
		if n, err := f.file.WriteAt(make([]byte, f.ahead), end); err == nil {
			f.room = end + int64(n)
		}
	}
	if _, err := f.file.WriteAt(b, f.size); err != nil {
		// What was written of it must not stand before the next record.
		if cut := f.file.Truncate(f.size); cut != nil {
			f.broken = fmt.Errorf("file is not usable any more: %w", errors.Join(err, cut))
		}
		f.room = f.size
		return 0, err
	}
	offset = f.size
	f.size += int64(len(b))
	return offset, nil
}

// seal fills in the header of a record.
func seal(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-header))
	binary.BigEndian.PutUint32(b[4:], checksum(b))
}

func checksum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli()), castagnoli(), b[header:])
}

// Sync returns when every record appended before the call is on the disk. Callers that come
// while a sync is under way share the next one. After a failure the file accepts
// nothing: the kernel may have dropped what it could not write.
func (f *File) Sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for want := f.size; f.broken == nil && f.synced < want; {
		if f.syncing {
			f.done.Wait()
			continue
		}
		f.syncing = true
		upTo := f.size
		f.mu.Unlock()
		err := syncData(f.file)
		f.mu.Lock()
		if f.syncing = false; err != nil {
			f.broken = fmt.Errorf("file is not usable any more: %w", err)
		} else {
			f.synced = upTo
		}
		f.done.Broadcast()
	}
	return f.broken
}

// Fail makes the file accept nothing any more, because of what its owner met.
func (f *File) Fail(reason error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.broken = fmt.Errorf("file is not usable any more: %w", reason)
	}
}

// Size is the offset behind the last record.
func (f *File) Size() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// ReadAt reads raw bytes, for Scan. It may be called while records are appended.
func (f *File) ReadAt(b []byte, offset int64) (int, error) { return f.file.ReadAt(b, offset) }

// Close closes the file and syncs nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.broken == nil {
		f.broken = os.ErrClosed
	}
	return f.file.Close()
}
