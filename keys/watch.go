package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// pollInterval keeps a removed key out within a second, reading included, at the price of four stat calls a second. Change
	// notifications would be quicker and miss network file systems, replaced folders and overflows.
	pollInterval = 250 * time.Millisecond

	// stillFor is how long a file that is written in place is left to its writer before it counts: an editor, or a shell's
	// redirection, empties it first and may be held up then. The second look after the first sight decides, whatever it
	// finds: of a file that is written again and again too, somebody removed is out within a second.
	stillFor = pollInterval * 3 / 2
)

// File is a trust file that is read again when it changes. Make one with [WatchFile] or [WatchOptionalFile]; the zero value
// has the zero T as its content and cannot run. Current, Reload and Refused may be called
// from anywhere, Run once.
type File[T any] struct {
	path    string
	parse   func(name string, r io.Reader) (T, error)
	current atomic.Pointer[T]
	refused atomic.Pointer[error] // why what the file says is not in force; nil in it: it is

	mu      sync.Mutex        // of what follows, and held while the file is read
	absent  bool              // there was never a file, which is no failure
	untold  bool              // Reload changed the content, and onChange does not know yet
	seen    fileID            // the file as last read
	settled bool              // whether a later change is certain to show in the identity
	sum     [sha256.Size]byte // of the content last read, good or bad
	info    os.FileInfo       // of the last look, for [os.SameFile]; nil: there was no file
	draft   time.Time         // when a content was first seen that somebody may still be writing; zero: there is none
	failure string            // the error last reported while the file could not be read, else ""
}

// trustFile is one consistent reading of a file.
type trustFile struct {
	content []byte
	info    os.FileInfo
	id      fileID
}

// errChanging says that the file changed while it was read; the next poll reads it again.
var errChanging = errors.New("file changes while it is read")

// readTrustFile reads a regular file of at most maxFileSize. On systems with modes it refuses a file that everybody can
// write, since then everybody decides who is trusted.
func readTrustFile(path string) (trustFile, error) {
	file, err := openForReading(path)
	if err != nil {
		return trustFile{}, err
	}
	defer file.Close()
	before, err := file.Stat()
	if err != nil {
		return trustFile{}, err
	}
	if !before.Mode().IsRegular() {
		return trustFile{}, fmt.Errorf("%s is not a regular file", path)
	}
	if mode := before.Mode().Perm(); modesMatter && mode&0o002 != 0 {
		return trustFile{}, fmt.Errorf("%s has mode %04o, so everybody can write it: chmod o-w %s", path, mode, path)
	}
	content, err := readLimited(path, file)
	if err != nil {
		return trustFile{}, err
	}
	after, err := file.Stat()
	if err != nil {
		return trustFile{}, err
	}
	if identify(before) != identify(after) {
		return trustFile{}, fmt.Errorf("%s: %w", path, errChanging)
	}
	return trustFile{content: content, info: after, id: identify(after)}, nil
}

// WatchFile reads path with parse, one of this package's Parse functions or another of that shape. The first load must
// succeed; a missing file is an error that matches [io/fs.ErrNotExist]. Changes are seen once [File.Run] runs.
func WatchFile[T any](path string, parse func(name string, r io.Reader) (T, error)) (*File[T], error) {
	f := &File[T]{path: path, parse: parse}
	read, err := readSettled(path)
	if err != nil {
		return nil, err
	}
	return f.started(read)
}

// WatchOptionalFile is [WatchFile] for a file that need not exist yet: until it appears, its content is that of an empty file.
// That holds for the beginning only. Once the file was there, to remove it changes nothing, as ever: see [File.Run].
func WatchOptionalFile[T any](path string, parse func(name string, r io.Reader) (T, error)) (*File[T], error) {
	f := &File[T]{path: path, parse: parse}
	read, err := readSettled(path)
	if errors.Is(err, fs.ErrNotExist) {
		f.absent = true
		return f.started(trustFile{})
	}
	if err != nil {
		return nil, err
	}
	return f.started(read)
}

// started is the first load.
func (f *File[T]) started(read trustFile) (*File[T], error) {
	if err := f.adopt(read); err != nil {
		return nil, err
	}
	f.remember(read)
	return f, nil
}

// readSettled reads a file that may be changing just now.
func readSettled(path string) (trustFile, error) {
	read, err := readTrustFile(path)
	for tries := 1; errors.Is(err, errChanging) && tries < 10; tries++ {
		read, err = readTrustFile(path)
	}
	return read, err
}

// Current returns the content that is in force: the newest that was good as a whole.
func (f *File[T]) Current() T {
	if value := f.current.Load(); value != nil {
		return *value
	}
	var zero T
	return zero
}

// Run looks for changes four times a second until ctx is done, at once for the first time. A good change becomes the current
// content, then onChange is called with it; one that is written in place is left to its writer for a moment first, and what is there
// then is in force three quarters of a second after the first writing at most. A bad one is refused whole: the old content stays in force and onError is called,
// once for each change. A file that was removed or cannot be read counts as a bad change: to withdraw every key, empty the
// file. Rewriting the same content is no change. Both functions are called from Run's goroutine, one at a time; either may be
// nil.
func (f *File[T]) Run(ctx context.Context, onChange func(T), onError func(error)) {
	if onChange == nil {
		onChange = func(T) {}
	}
	if onError == nil {
		onError = func(error) {}
	}
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for ctx.Err() == nil {
		f.poll(onChange, onError)
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// poll looks once.
func (f *File[T]) poll(onChange func(T), onError func(error)) {
	changed, err := f.look()
	if err != nil {
		onError(err)
	}
	if changed {
		onChange(f.Current())
	}
}

// look reads the file if it seems to have changed. It reports whether there is a content that onChange was not called with, and
// an error that nobody has heard of yet.
func (f *File[T]) look() (changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.untold
	f.untold = false
	info, err := os.Stat(f.path)
	if err == nil && f.failure == "" && f.settled && identify(info) == f.seen {
		return changed, nil
	}
	read, err := readTrustFile(f.path)
	switch {
	case errors.Is(err, errChanging) || f.absent && errors.Is(err, fs.ErrNotExist):
		return changed, nil
	case err != nil && err.Error() == f.failure:
		return changed, nil
	case err != nil:
		return changed, f.fail(err)
	}
	if f.unfinished(read) || !f.remember(read) {
		return changed, nil
	}
	if err := f.adopt(read); err != nil {
		return changed, err
	}
	return true, nil
}

// unfinished reports whether somebody may still be writing what was read. A file in the place of the one before is taken for one
// that was moved there whole, unless it is empty: then it was made there.
func (f *File[T]) unfinished(read trustFile) bool {
	sum := sha256.Sum256(read.content)
	inPlace := len(read.content) == 0 || f.info != nil && os.SameFile(f.info, read.info)
	if sum == f.sum || !inPlace {
		return false
	}
	f.info = read.info
	if f.draft.IsZero() {
		f.draft = time.Now()
	}
	return time.Since(f.draft) < stillFor
}

// Reload reads the file at once, changed or not, and returns an error if it is missing, cannot be read or does not parse; the
// old content then stays in force, and onError is not called for it as well. A good change is in force when Reload returns;
// onChange is called a little later, from Run's goroutine. A file that [WatchOptionalFile] has not found yet may still be missing.
func (f *File[T]) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	read, err := readSettled(f.path)
	if f.absent && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return f.fail(err)
	}
	changed := f.remember(read)
	if err := f.adopt(read); err != nil {
		return err
	}
	f.untold = f.untold || changed
	return nil
}

// Refused is why the file, as last looked at, is not in force; nil if it is.
// It does not wait for a file that is being read.
func (f *File[T]) Refused() error {
	if err := f.refused.Load(); err != nil {
		return *err
	}
	return nil
}

// adopt puts the content in force, if it is good.
func (f *File[T]) adopt(read trustFile) error {
	value, err := f.parse(f.path, bytes.NewReader(read.content))
	f.refused.Store(&err)
	if err != nil {
		return err
	}
	f.current.Store(&value)
	return nil
}

// fail notes that the file cannot be read.
func (f *File[T]) fail(err error) error {
	f.failure = err.Error()
	f.draft = time.Time{}
	err = fmt.Errorf("the last good content stays in force: %w", err)
	f.refused.Store(&err)
	return err
}

// remember notes what was read and reports whether that is news. A file that was changed just now can change again without a
// visible trace, because its times are as coarse as the kernel's clock tick: it is read again until it is older than any tick.
func (f *File[T]) remember(read trustFile) (news bool) {
	const coarsestTick = 2 * time.Second // FAT's; others are below 20 ms
	sum := sha256.Sum256(read.content)
	news = sum != f.sum || f.failure != ""
	f.absent = f.absent && read.info == nil
	f.failure = ""
	f.seen, f.info = read.id, read.info
	f.sum = sum
	f.draft = time.Time{}
	f.settled = time.Since(read.id.changed()).Abs() > coarsestTick
	return news
}
