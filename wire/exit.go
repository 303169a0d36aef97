package wire

import (
	"fmt"
	"slices"
)

// ExitStatus says how a command ended. Exactly one of Code and Signal counts: Signal
// is empty when the command exited by itself.
type ExitStatus struct {
	Code   int    `cbor:"1,keyasint"`
	Signal Signal `cbor:"2,keyasint,omitempty"`
	Cause  Cause  `cbor:"3,keyasint"`
	// PipesHeld: something still held the output open after the drain deadline, so the
	// end of the output may be missing.
	PipesHeld bool `cbor:"4,keyasint,omitempty"`
	// Strays is how many processes outlived the main one and were ended.
	Strays uint32 `cbor:"5,keyasint,omitempty"`
	// Hit are the limits that the command ran into, whether or not they ended it.
	Hit LimitSet `cbor:"6,keyasint,omitempty"`
	// Denials is what the sandbox refused to the command, as far as that is known, at most MaxDenials. It need not be why the command
	// ended as it did, nor be all. It travels beside the status, and an executor that was restarted has forgotten it.
	Denials []Denial `cbor:"-"`
}

// Equal reports whether both say the same.
func (e ExitStatus) Equal(other ExitStatus) bool {
	return e.Code == other.Code && e.Signal == other.Signal && e.Cause == other.Cause && e.PipesHeld == other.PipesHeld &&
		e.Strays == other.Strays && e.Hit == other.Hit && slices.Equal(e.Denials, other.Denials)
}

// Success reports whether the command ran to its end and returned zero.
func (e ExitStatus) Success() bool {
	return e.Cause == CauseExited && e.Signal == "" && e.Code == 0
}

// ShellCode is the number a shell would show: the code, 128+n for a signal, 124 when the
// time limit ended it (as timeout(1) does), and 255 when nobody knows how it ended.
func (e ExitStatus) ShellCode() int {
	switch {
	case !e.Cause.valid() || e.Cause == CauseExecutorLost:
		return 255
	case e.Cause == CauseTimedOut:
		return 124
	case e.Signal != "":
		return 128 + e.Signal.Number()
	}
	return e.Code
}

// String is one short sentence.
func (e ExitStatus) String() string {
	s := fmt.Sprintf("exit status %d", e.Code)
	if e.Signal != "" {
		s = "ended by signal " + string(e.Signal)
	}
	if e.Cause != CauseExited && e.Cause != CauseSignalled {
		s += " (" + e.Cause.String() + ")"
	}
	return s
}

// Cause is why a command ended.
type Cause uint8

// The causes.
const (
	CauseExited       Cause = 1 + iota // it returned
	CauseSignalled                     // a signal that postern did not send to end it
	CauseTimedOut                      // its time limit
	CauseOOM                           // its memory limit
	CauseTerminated                    // Terminate, or the detach grace ran out
	CauseRevoked                       // the key that started it was removed
	CauseExecutorLost                  // the executor went away: the outcome is unknown
	CauseLimit                         // a limit other than memory and time; Hit names it
)

var causeNames = [...]string{
	CauseExited: "exited", CauseSignalled: "signalled", CauseTimedOut: "timed out",
	CauseOOM: "out of memory", CauseTerminated: "terminated", CauseRevoked: "revoked", CauseExecutorLost: "executor lost", CauseLimit: "limit reached",
}

// String is the cause in words.
func (c Cause) String() string {
	if c.valid() {
		return causeNames[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

func (c Cause) valid() bool { return c >= CauseExited && c <= CauseLimit }

// Signal is a POSIX signal by its name without SIG, so that no machine's numbers
// cross the wire.
type Signal string

// The signals that can be sent, or can end a command, with their numbers on Linux
// (signal(7), x86 and ARM).
var signalNumbers = map[Signal]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16,
	"CHLD": 17, "CONT": 18, "STOP": 19, "TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23,
	"XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28, "IO": 29, "PWR": 30, "SYS": 31,
}

// Number is the signal's number on Linux, zero for an unknown name. Real-time signals
// are "RTMIN" and "RTMIN+n".
func (s Signal) Number() int {
	if n, ok := signalNumbers[s]; ok {
		return n
	}
	if s == "RTMIN" {
		return 34
	}
	var n int
	if _, err := fmt.Sscanf(string(s), "RTMIN+%d", &n); err == nil && n > 0 && n <= 30 && s == SignalNumber(34+n) {
		return 34 + n
	}
	return 0
}

// SignalNumber is the name of Linux signal n, empty when there is none.
func SignalNumber(n int) Signal {
	for s, m := range signalNumbers {
		if m == n {
			return s
		}
	}
	switch {
	case n == 34:
		return "RTMIN"
	case n > 34 && n <= 64:
		return Signal(fmt.Sprintf("RTMIN+%d", n-34))
	}
	return ""
}
