package sandbox

import (
	"errors"
	"syscall"
)

// stageError is a failed step inside the init, or in the daemon's preparation.
type stageError struct {
	stage, path string
	err         error
}

func (e *stageError) Error() string { return e.stage + " " + e.path + ": " + e.err.Error() }
func (e *stageError) Unwrap() error { return e.err }

func fail(stage, path string, err error) error {
	if err == nil {
		return nil
	}
	var se *stageError
	if errors.As(err, &se) {
		return err
	}
	return &stageError{stage, path, err}
}

const (
	classSetup = iota
	classCommand
)

func encodeError(err error) []byte {
	var w writer
	var ce *CommandError
	var se *stageError
	class, stage, path, cause := classSetup, "init", "", err
	switch {
	case errors.As(err, &ce):
		class, stage, path, cause = classCommand, ce.Op, ce.Path, ce.Err
	case errors.As(err, &se):
		stage, path, cause = se.stage, se.path, se.err
	}
	var no syscall.Errno
	errors.As(cause, &no)
	if len(path) > 4096 {
		path = path[:4096]
	}
	w.num(uint64(class))
	w.str(stage)
	w.str(path)
	w.num(uint64(no))
	w.str(cause.Error())
	return w.b
}

// decodeError makes the typed error of what an init reported.
func decodeError(b []byte) error {
	r := reader{b: b}
	class, stage, path, no, text := r.num(), r.str(), r.str(), r.num(), r.str()
	if err := r.done(); err != nil {
		return &SetupError{Stage: "init", Err: err}
	}
	var cause error = syscall.Errno(no)
	if class == classCommand {
		if no == 0 {
			cause = errors.New(text)
		}
		return &CommandError{Op: stage, Path: path, Err: cause}
	}
	if no == 0 || text != cause.Error() {
		cause = &reported{text, syscall.Errno(no)}
	}
	return explain(&stageError{stage, path, cause})
}

// reported keeps the init's words and still answers errors.Is with the errno.
type reported struct {
	text string
	no   syscall.Errno
}

func (e *reported) Error() string { return e.text }
func (e *reported) Unwrap() error {
	if e.no == 0 {
		return nil
	}
	return e.no
}
