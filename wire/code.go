package wire

import (
	"errors"
	"fmt"
	"time"
)

// Code says why something was refused or ended. Codes cross the wire as numbers, in
// messages and as QUIC reset codes; the zero value is not a code.
type Code uint16

// The codes. A number is never used again for something else.
const (
	CodeInternal     Code = 1  // a defect or a failing disk of the sender's
	CodeProtocol     Code = 2  // the peer broke the protocol
	CodeUnsupported  Code = 3  // the kind of message or conversation is not known here
	CodeUnauthorized Code = 4  // the key is not admitted
	CodeUnreachable  Code = 5  // the executor is unknown, offline or somebody else's: one answer for all
	CodeBusy         Code = 6  // a limit is reached; retry-after says when to come back
	CodeLimit        Code = 7  // a limit that waiting does not lift
	CodeNoChannel    Code = 8  // the session is not known (any more): make a fresh one
	CodeLate         Code = 9  // the opening message came after its deadline: nothing was done
	CodeTimeout      Code = 10 // the peer was too slow
	CodeDuplicate    Code = 11 // another process uses this key and is alive
	CodeSuperseded   Code = 12 // a newer one took over
	CodeConflict     Code = 13 // the exec id was used for another request
	CodeNotFound     Code = 14 // no such exec, or not yours
	CodePolicy       Code = 15 // the executor's owner does not allow it
	CodeSandbox      Code = 16 // the sandbox could not be built
	CodeBadRequest   Code = 17 // the request makes no sense here (cwd missing, empty argv, ...)
	CodeNotFoundCmd  Code = 18 // the command does not exist in the view: exit code 127
	CodeNotExec      Code = 19 // the command cannot be executed: exit code 126
	CodeUnknown      Code = 20 // the outcome is unknown
	CodeEnded        Code = 21 // the exec has ended already
	CodeRevoked      Code = 22 // the key was removed while it was in use
	CodeShutdown     Code = 23 // the sender is going away
	CodeVersion      Code = 24 // no wire version in common
	CodeCancelled    Code = 25 // the other end gave up
	CodeToken        Code = 26 // the join token is spent, expired or not known here
	CodeNameTaken    Code = 27 // another executor of the tenant has the name
)

var codeNames = [...]string{
	CodeInternal: "internal", CodeProtocol: "protocol", CodeUnsupported: "unsupported",
	CodeUnauthorized: "unauthorized", CodeUnreachable: "unreachable", CodeBusy: "busy",
	CodeLimit: "limit", CodeNoChannel: "no_channel", CodeLate: "late", CodeTimeout: "timeout",
	CodeDuplicate: "duplicate", CodeSuperseded: "superseded", CodeConflict: "conflict",
	CodeNotFound: "not_found", CodePolicy: "policy", CodeSandbox: "sandbox",
	CodeBadRequest: "bad_request", CodeNotFoundCmd: "command_not_found",
	CodeNotExec: "command_not_executable", CodeUnknown: "outcome_unknown", CodeEnded: "ended",
	CodeRevoked: "revoked", CodeShutdown: "shutdown", CodeVersion: "version",
	CodeCancelled: "cancelled", CodeToken: "token", CodeNameTaken: "name_taken",
}

// Known reports whether c is one of the codes above.
func (c Code) Known() bool { return int(c) < len(codeNames) && codeNames[c] != "" }

// String is the stable name of the code, for logs, metrics and JSON.
func (c Code) String() string {
	if c.Known() {
		return codeNames[c]
	}
	return fmt.Sprintf("code_%d", uint16(c))
}

// Error is a refusal or an end that one side told the other. Text is for people and
// comes from the peer: print it, never branch on it.
type Error struct {
	Code       Code
	Text       string
	RetryAfter time.Duration // zero: no advice
}

// Error is the text, or the code's name where there is none.
func (e *Error) Error() string {
	if e.Text != "" {
		return e.Text
	}
	return e.Code.String()
}

// Is makes errors.Is(err, &Error{Code: c}) true for every Error of that code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code && t.Text == ""
}

// Errorf is an *[Error] with a formatted text.
func Errorf(c Code, format string, args ...any) *Error {
	return &Error{Code: c, Text: fmt.Sprintf(format, args...)}
}

// CodeOf is the code of the first *[Error] in err's chain, CodeUnknown for
// [ErrLost], and CodeInternal for any other error.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if errors.Is(err, ErrLost) {
		return CodeUnknown
	}
	return CodeInternal
}

// ErrLost means that the far end is gone and the outcome is unknown. It is never
// turned into an exit status.
var ErrLost = errors.New("connection lost, outcome unknown")

// ErrStdinClosed is what Write and CloseStdin of an [ExecProcess] return once the
// command has closed its standard input or has ended, or CloseStdin was called.
var ErrStdinClosed = errors.New("standard input of the command is closed")

// ErrClosed is what the methods of a closed [ExecProcess] return.
var ErrClosed = errors.New("exec handle is closed")
