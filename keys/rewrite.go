package keys

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// ErrNotListed is what removing or replacing returns for something that is not in the file, or when there is no file.
var ErrNotListed = errors.New("it is not listed")

// rewriting serialises the changes of this process; lockFolderOf adds other processes.
var rewriting sync.Mutex

// parser is the shape of this package's Parse functions.
type parser[T any] func(name string, r io.Reader) (T, error)

// rewrite replaces the file at path by what change makes of its content, in one step, or creates it with mode 0600. Its folder
// must exist. A nil result leaves everything as it is; change gets no content when there is no file. What is there and the
// result are parsed, so that a file which parsed before parses afterwards; it keeps its mode and owner.
func rewrite[T any](path string, parse parser[T], change func(content []byte, parsed T) ([]byte, error)) error {
	return rewriteRead(path, readTrustFile, parse, change)
}

// rewriteRead is rewrite with another way to read the file.
func rewriteRead[T any](path string, read func(string) (trustFile, error), parse parser[T], change func([]byte, T) ([]byte, error)) error {
	rewriting.Lock()
	defer rewriting.Unlock()
	// A rename would replace a symbolic link; the file it points to is meant.
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	unlock, err := lockFolderOf(path)
	if err != nil {
		return err
	}
	defer unlock()

	prepare := func(*os.File) error { return nil }
	old, err := read(path)
	exists := err == nil
	switch {
	case exists:
		prepare = func(file *os.File) error { return keepOwner(file, old.info) }
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parsed, err := parse(path, bytes.NewReader(old.content))
	if err != nil {
		return err
	}
	content, err := change(bytes.Clone(old.content), parsed)
	if err != nil || content == nil || exists && bytes.Equal(content, old.content) {
		return err
	}
	if _, err := parse(path, bytes.NewReader(content)); err != nil {
		return err
	}
	return replaceWhole(path, content, prepare)
}

// appendLine adds a line at the end, after a line end that was missing.
func appendLine(content []byte, line string) []byte {
	return append(endLine(content), line+"\n"...)
}

// endLine gives the last line its line end.
func endLine(content []byte) []byte {
	if len(content) > 0 && content[len(content)-1] != '\n' {
		content = append(content, '\n')
	}
	return content
}

// withoutLine removes the line with the number, counted from 1.
func withoutLine(content []byte, number int) []byte {
	return editLines(content, func(at int, line []byte) []byte {
		if at == number {
			return nil
		}
		return line
	})
}

// withLine puts text in the place of the line with the number, counted from 1.
func withLine(content []byte, number int, text string) []byte {
	return editLines(content, func(at int, line []byte) []byte {
		if at == number {
			return []byte(text + lineEnd(line))
		}
		return line
	})
}

// editLines returns the content with what edit makes of each line and its line end. It is never nil.
func editLines(content []byte, edit func(number int, line []byte) []byte) []byte {
	edited := make([]byte, 0, len(content))
	number := 0
	for line := range bytes.Lines(content) {
		number++
		edited = append(edited, edit(number, line)...)
	}
	return edited
}

// lineEnd returns the line end of a line, which the last may lack.
func lineEnd(line []byte) string {
	return string(line[len(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))):])
}
