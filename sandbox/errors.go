package sandbox

import (
	"errors"
	"fmt"
	"strings"
)

// ErrClosed is returned by Start after Launcher.Close.
var ErrClosed = errors.New("sandbox launcher is closed")

// ErrInitLost is returned by Wait when the sandbox's init ended before it could
// report how the command ended; every process of the sandbox has been killed.
var ErrInitLost = errors.New("sandbox init was killed before its command ended")

// SetupError says that the sandbox could not be built. Nothing was run.
type SetupError struct {
	// Stage names the step that failed, Path the file it was about, if any.
	Stage, Path string
	Err         error
}

// Error names the step, the path and the cause.
func (e *SetupError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("sandbox set-up failed at %s: %v", e.Stage, e.Err)
	}
	return fmt.Sprintf("sandbox set-up failed at %s: %s: %v", e.Stage, e.Path, e.Err)
}

// Unwrap returns the cause.
func (e *SetupError) Unwrap() error { return e.Err }

// UnsupportedError says that this machine lacks layers of the sandbox. Nothing
// was run; commands are never run with fewer layers.
type UnsupportedError struct {
	// Missing holds at least one layer with its reason and remedy.
	Missing []Layer
}

// Error names every missing layer with its reason and remedy.
func (e *UnsupportedError) Error() string {
	var b strings.Builder
	b.WriteString("this machine cannot run the sandbox")
	for i, l := range e.Missing {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		fmt.Fprintf(&b, "%s%s: %s", sep, l.Name, l.Reason)
		if l.Remedy != "" {
			fmt.Fprintf(&b, " (%s)", l.Remedy)
		}
	}
	return b.String()
}

// CommandError says that the sandbox stands but the command could not start in it.
type CommandError struct {
	// Op is "chdir", "lookup" or "exec"; Path is the directory or program.
	Op, Path string
	// Err is a syscall.Errno such as ENOENT, EACCES or E2BIG.
	Err error
}

// Error names the operation, the path and the cause.
func (e *CommandError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the cause, so that errors.Is works with syscall.Errno values.
func (e *CommandError) Unwrap() error { return e.Err }
