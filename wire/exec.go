package wire

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	"time"
)

// ExecBackend starts commands and finds them again. executor.Local runs them on this
// machine, client.Remote on another. It is safe for concurrent use.
//
// The context of a call bounds that call, never the life of the command.
type ExecBackend interface {
	// Start starts a command, or returns the one that an identical earlier Start with
	// the same ExecID started. Errors are *Error values: CodeConflict when the id belongs
	// to another request, CodeNotFoundCmd and CodeNotExec when there is no such
	// program, CodePolicy, CodeSandbox, CodeBadRequest. ErrLost means it may be running.
	Start(context.Context, ExecParams) (ExecProcess, error)
	// Attach returns a handle on a running or recently ended command, CodeNotFound if
	// there is none or if it is somebody else's.
	Attach(context.Context, ExecID, AttachOptions) (ExecProcess, error)
	// List is every exec that the caller may see, in order of start.
	List(context.Context) ([]ExecInfo, error)
	// Signal is ExecProcess.Signal without a handle: whoever controls the exec keeps it.
	Signal(context.Context, ExecRef, Signal) error
	// Terminate is ExecProcess.Terminate without a handle.
	Terminate(ctx context.Context, ref ExecRef, grace time.Duration) error
	// Remove forgets the result and the output of an exec that has ended, CodeBusy while it
	// runs. Its id stays taken: the same Start is answered CodeUnknown, and nothing runs again.
	Remove(context.Context, ExecRef) error
}

// ExecProcess is a handle on one command. Methods may be called concurrently, but the
// output has one consumer: of two concurrent Reads either may get a chunk's
// acknowledgement wrong.
type ExecProcess interface {
	ID() ExecID
	// Info is what was known when the handle was made: the policy that is in force,
	// the start time, the detach grace.
	Info() ExecInfo
	// Read returns what the ordered output log holds after r.After, waiting up to r.Wait
	// for something to exist. On a controlling handle it acknowledges everything up to
	// r.After; acknowledgements never go back, and an older After yields what is still
	// kept, or a Gap. An empty response is no error. It fails with ErrClosed, ErrLost,
	// the context's error, or an *Error (CodeSuperseded, CodeRevoked, ...).
	Read(context.Context, ReadRequest) (ReadResponse, error)
	// Write gives stdin bytes that begin at this offset of the whole input. Bytes before
	// the offset already accepted are dropped, so a repeated Write is harmless; a hole is an
	// error. It waits for credit, and returns when all is accepted in order. Of what is left when the context has ended nothing
	// is accepted.
	Write(ctx context.Context, offset uint64, p []byte) error
	// CloseStdin ends the input after what Write accepted.
	CloseStdin(context.Context) error
	// Resize sets the size of the terminal; CodeBadRequest without one.
	Resize(context.Context, WinSize) error
	// Signal goes to the command's process group, or the terminal's foreground group.
	// CodeEnded once the command has ended.
	Signal(context.Context, Signal) error
	// Terminate sends TERM to everything the command started, and KILL after grace
	// (zero: what Start said, else DefaultKillAfter). It returns at once. CodeEnded once the
	// command has ended.
	Terminate(ctx context.Context, grace time.Duration) error
	// Wake is closed when anything with a sequence number above after exists, or the
	// handle can yield nothing more.
	Wake(after uint64) <-chan struct{}
	// Events yields everything after a sequence number, first what is kept, then live,
	// and ends after Exit. It acknowledges as it goes. An error ends it.
	Events(ctx context.Context, after uint64) iter.Seq2[Event, error]
	// Wait discards output from the highest acknowledged number on until Exit.
	Wait(context.Context) (ExitStatus, error)
	// Close detaches. It never ends the command, and frees what the handle holds.
	Close() error
}

// ExecID names one exec for ever. The client chooses it, so that a repeated Start can
// be told from a second one. The zero value is invalid.
type ExecID [16]byte

// NewExecID is 16 random bytes.
func NewExecID() ExecID {
	var id ExecID
	rand.Read(id[:])
	return id
}

// ParseExecID reads the 32 hexadecimal digits that String prints.
func ParseExecID(s string) (ExecID, error) {
	var id ExecID
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return ExecID{}, fmt.Errorf("exec id %q: want 32 hexadecimal digits", s)
	}
	copy(id[:], b)
	if id.IsZero() {
		return ExecID{}, fmt.Errorf("exec id %q: all zeros is not an id", s)
	}
	return id, nil
}

// String is the id in hexadecimal.
func (id ExecID) String() string { return hex.EncodeToString(id[:]) }

// UnmarshalCBOR accepts a byte string of 16 bytes and nothing else.
func (id *ExecID) UnmarshalCBOR(b []byte) error { return fixedBytes(id[:], b) }

// IsZero reports whether id is the invalid zero value.
func (id ExecID) IsZero() bool { return id == ExecID{} }

// ExecParams says what to run. The paths and the environment are the executor's.
type ExecParams struct {
	ID   ExecID   // zero: Start makes one
	Argv []string // reaches the process byte for byte; Argv[0] is looked up in PATH inside the view
	Arg0 string   // what the process sees as argv[0]; empty: Argv[0]
	Dir  string   // empty: the executor's first workspace
	Env  []string // K=V, added to what is inherited; the last of two wins
	// Inherit says what comes from the executor's own environment; zero: InheritCore.
	Inherit EnvInherit
	// Exclude are path.Match patterns of names that are not inherited.
	Exclude []string
	Umask   uint32 // zero: 022
	Stdin   bool   // false: the null device
	TTY     *WinSize
	// Merge gives stdout and stderr one pipe, so that their order is exact.
	Merge   bool
	Sandbox SandboxMode // zero: SandboxWorkspaceWrite; narrowed to the executor's maximum
	// Roots are the workspaces to have, each one of the executor's or a folder in one. Empty:
	// all of the executor's. They narrow what may be written, Dir never widens it.
	Roots []string
	View  View // zero: ViewFull
	// Network is what the command reaches; zero: nothing but its own loopback, with SandboxFullAccess what the machine
	// reaches. A network that is wider than the executor or the client's line allows is refused.
	Network Network
	// Limits are met with the executor's: the tighter one counts.
	Limits Limits
	// Timeout ends the command on the executor's clock, whatever happens to the client.
	Timeout   time.Duration
	KillAfter time.Duration // between TERM and KILL; zero: DefaultKillAfter
	// Grace is how long the command lives on without a controller; zero: DefaultGrace,
	// negative: not at all. The executor bounds it, ExecInfo tells.
	Grace time.Duration
	// Detach: it needs no controller. Grace does not count, and its output goes to a file.
	Detach bool
	OnFull OnFull // zero: OnFullDrop with Detach, else OnFullBlock
}

// OnFull says what happens to a command whose output nobody takes.
type OnFull uint8

// The choices. Nothing is ever lost without a Gap.
const (
	OnFullBlock OnFull = 1 + iota // the command waits
	OnFullDrop                    // output goes to a file, and the oldest is dropped when that is full
)

var onFullNames = [...]string{OnFullBlock: "block", OnFullDrop: "drop"}

// String is the choice's name on the command line.
func (o OnFull) String() string {
	if o >= OnFullBlock && o <= OnFullDrop {
		return onFullNames[o]
	}
	return fmt.Sprintf("choice %d for a full log", uint8(o))
}

// ParseOnFull reads a choice's name.
func ParseOnFull(s string) (OnFull, error) {
	for o, name := range onFullNames {
		if name != "" && name == s {
			return OnFull(o), nil
		}
	}
	return 0, fmt.Errorf("choice %q: want block or drop", s)
}

// ExecRef names an exec of anybody's. Where the caller may see several with this id, Owner
// must say which; it may be empty otherwise.
type ExecRef struct {
	ID    ExecID
	Owner string
}

// AttachOptions says how to come back to an exec.
type AttachOptions struct {
	After   uint64 // the highest sequence number already seen
	Control bool   // take over stdin, resize and acknowledgements; false: only watch
	Owner   string // as in ExecRef
}

// ExecInfo describes one exec.
type ExecInfo struct {
	ID       ExecID
	Started  time.Time
	Sandbox  SandboxMode // what is in force, never wider than what was asked for
	Roots    []string    // the workspaces, as the view shows them
	View     View
	Network  Network // in force
	Limits   Limits  // in force, zero where there is none
	Grace    time.Duration
	TTY      bool
	Attached bool        // a controller is connected
	Exit     *ExitStatus // nil while it runs
	Ended    time.Time   // zero while it runs

	Owner   string // the principal that it belongs to
	Command string // for people: shortened, and only in a List by the executor that ran it
	Detach  bool
	OnFull  OnFull
	Last    uint64 // highest number in the log, when this was made
	Input   uint64 // bytes of stdin that were taken over by then
}

// EnvInherit says which of the executor's variables a command gets.
type EnvInherit uint8

// The choices. The daemon's own secrets are never passed on.
const (
	InheritCore EnvInherit = 1 + iota // PATH, LANG, LC_*, TZ
	InheritNone
	InheritAll // all but what begins with POSTERN_ and what is excluded
)

// SandboxMode is how much of the executor's machine a command may change.
type SandboxMode uint8

// The modes, from the narrowest.
const (
	SandboxReadOnly SandboxMode = 1 + iota
	SandboxWorkspaceWrite
	SandboxFullAccess
)

var sandboxNames = [...]string{SandboxReadOnly: "read-only", SandboxWorkspaceWrite: "workspace-write", SandboxFullAccess: "full-access"}

// String is the mode's name on the command line.
func (m SandboxMode) String() string {
	if m.valid() {
		return sandboxNames[m]
	}
	return fmt.Sprintf("sandbox mode %d", uint8(m))
}

func (m SandboxMode) valid() bool { return m >= SandboxReadOnly && m <= SandboxFullAccess }

// ParseSandboxMode reads a mode's name.
func ParseSandboxMode(s string) (SandboxMode, error) {
	for m, name := range sandboxNames {
		if name != "" && name == s {
			return SandboxMode(m), nil
		}
	}
	return 0, fmt.Errorf("sandbox mode %q: want read-only, workspace-write or full-access", s)
}

// WinSize is a terminal's size in character cells.
type WinSize struct {
	_    struct{} `cbor:",toarray"`
	Rows uint16
	Cols uint16
}

// OutputStream tells where output came from.
type OutputStream uint8

// The streams. A terminal has one.
const (
	Stdout OutputStream = 1 + iota
	Stderr
	Terminal
)

// String is "stdout", "stderr" or "tty".
func (s OutputStream) String() string {
	switch s {
	case Stdout:
		return "stdout"
	case Stderr:
		return "stderr"
	case Terminal:
		return "tty"
	}
	return fmt.Sprintf("stream %d", uint8(s))
}

// ReadRequest is one step of a cursor over the output log.
type ReadRequest struct {
	After    uint64        // return what comes after this number
	MaxBytes int           // about how much; zero: 256 KiB. One whole chunk always fits.
	Wait     time.Duration // how long to wait for something; zero: not at all
}

// ReadResponse is what the log holds: at most one Gap, which lies before the chunks,
// then chunks, then Exit if it follows at once.
type ReadResponse struct {
	Gap    *Gap
	Chunks []Chunk
	Exit   *ExitStatus
	Next   uint64 // pass as After next time
}

// Chunk is one immutable piece of output. Do not alter Data.
type Chunk struct {
	Seq    uint64
	Stream OutputStream
	Data   []byte
}

// Gap says that output is no longer kept: numbers From to To, Bytes of them in all. Bytes is
// zero when nobody knows how many.
type Gap struct {
	From, To uint64
	Bytes    uint64
}

// Event is one thing that happened: exactly one of the fields is set.
type Event struct {
	Seq   uint64 // the number after which to go on
	Chunk *Chunk
	Gap   *Gap
	Exit  *ExitStatus
}
