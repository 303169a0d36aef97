package wire

import (
	"errors"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Start is the first message of a channel that runs a command. Words of a command and
// paths are byte strings: the executor's file names need not be UTF-8.
type Start struct {
	// Deadline is on the session clock, milliseconds; later is answered CodeLate.
	Deadline uint64 `cbor:"2,keyasint"`
	ID       ExecID `cbor:"3,keyasint"`
	Instance ID     `cbor:"4,keyasint"` // of the client process
	Attempt  uint64 `cbor:"5,keyasint"` // rises with every Start and Attach of the instance
	Epoch    ID     `cbor:"6,keyasint"` // the executor's state epoch at the first try

	Argv    []cbor.ByteString `cbor:"7,keyasint"`
	Arg0    cbor.ByteString   `cbor:"8,keyasint,omitempty"`
	Dir     cbor.ByteString   `cbor:"9,keyasint,omitempty"`
	Env     []cbor.ByteString `cbor:"10,keyasint,omitempty"`
	Inherit EnvInherit        `cbor:"11,keyasint"`
	Exclude []string          `cbor:"12,keyasint,omitempty"`
	Umask   uint32            `cbor:"13,keyasint,omitempty"`
	Stdin   bool              `cbor:"14,keyasint,omitempty"`
	TTY     *WinSize          `cbor:"15,keyasint,omitempty"`
	Merge   bool              `cbor:"16,keyasint,omitempty"`
	Sandbox SandboxMode       `cbor:"17,keyasint"`

	TimeoutMillis   uint64  `cbor:"18,keyasint,omitempty"`
	KillAfterMillis uint64  `cbor:"19,keyasint,omitempty"`
	GraceMillis     *uint64 `cbor:"20,keyasint,omitempty"` // absent: the executor's default
	// Keys 21 (trace) and 22 (labels) are reserved.
	OnFull OnFull            `cbor:"23,keyasint,omitempty"` // absent: drop when detached, else block
	Detach bool              `cbor:"24,keyasint,omitempty"` // it lives on without a controller for as long as it likes
	Limits *Limits           `cbor:"25,keyasint,omitempty"`
	Roots  []cbor.ByteString `cbor:"26,keyasint,omitempty"`
	View   View              `cbor:"27,keyasint,omitempty"`
	// Network is absent where nothing is asked for, which is none.
	Network *Network `cbor:"28,keyasint,omitempty"`
}

// Type is TypeStart.
func (*Start) Type() Type { return TypeStart }

func (m *Start) check() error {
	switch {
	case m.ID.IsZero():
		return errors.New("no exec id")
	case m.Instance == ID{}:
		return errors.New("no instance id")
	case m.Attempt == 0:
		return errors.New("no attempt number")
	case len(m.Argv) == 0 || m.Argv[0] == "":
		return errors.New("no command")
	case m.Inherit < InheritCore || m.Inherit > InheritAll:
		return errors.New("unknown inherit value")
	case !m.Sandbox.valid():
		return errors.New("unknown sandbox mode")
	case m.Umask > 0o777:
		return errors.New("umask above 0777")
	}
	if m.View != 0 && !m.View.valid() {
		return errors.New("unknown view")
	}
	if err := m.Network.check(); err != nil {
		return err
	}
	if m.OnFull > OnFullDrop {
		return errors.New("unknown choice for a full log")
	}
	for _, list := range [][]cbor.ByteString{m.Argv, m.Env, m.Roots, {m.Arg0, m.Dir}} {
		for _, s := range list {
			if strings.IndexByte(string(s), 0) >= 0 {
				return errors.New("a word holds a NUL byte")
			}
		}
	}
	for _, kv := range m.Env {
		if i := strings.IndexByte(string(kv), '='); i <= 0 {
			return errors.New("environment entry without a name")
		}
	}
	return nil
}

// NewStart is p as a message, with the defaults filled in. The fields about the
// session are the caller's to set.
func NewStart(p ExecParams) *Start {
	m := &Start{
		ID: p.ID, Argv: byteStrings(p.Argv), Arg0: cbor.ByteString(p.Arg0), Dir: cbor.ByteString(p.Dir),
		Env: byteStrings(p.Env), Inherit: p.Inherit, Exclude: p.Exclude, Umask: p.Umask,
		Stdin: p.Stdin, TTY: p.TTY, Merge: p.Merge, Sandbox: p.Sandbox,
		TimeoutMillis: toMillis(p.Timeout), KillAfterMillis: toMillis(p.KillAfter),
	}
	if m.Inherit == 0 {
		m.Inherit = InheritCore
	}
	if m.Sandbox == 0 {
		m.Sandbox = SandboxWorkspaceWrite
	}
	m.Roots, m.View, m.Network = byteStrings(p.Roots), p.View, p.Network.pointer()
	if m.OnFull, m.Detach = p.OnFull, p.Detach; m.OnFull == 0 {
		if m.OnFull = OnFullBlock; m.Detach {
			m.OnFull = OnFullDrop
		}
	}
	if p.Limits != (Limits{}) {
		m.Limits = &p.Limits
	}
	if p.Grace != 0 {
		g := toMillis(p.Grace)
		m.GraceMillis = &g
	}
	return m
}

// Params is the inverse of NewStart.
func (m *Start) Params() ExecParams {
	p := ExecParams{
		ID: m.ID, Argv: plainStrings(m.Argv), Arg0: string(m.Arg0), Dir: string(m.Dir),
		Env: plainStrings(m.Env), Inherit: m.Inherit, Exclude: m.Exclude, Umask: m.Umask,
		Stdin: m.Stdin, TTY: m.TTY, Merge: m.Merge, Sandbox: m.Sandbox,
		Timeout: millis(m.TimeoutMillis), KillAfter: millis(m.KillAfterMillis),
	}
	p.Roots, p.View, p.Network = plainStrings(m.Roots), m.View, m.Network.value()
	p.OnFull, p.Detach = m.OnFull, m.Detach
	if m.Limits != nil {
		p.Limits = *m.Limits
	}
	if m.GraceMillis != nil {
		if p.Grace = millis(*m.GraceMillis); p.Grace == 0 {
			p.Grace = -1
		}
	}
	return p
}

// Normalize fills in the defaults of p and checks it as the wire would.
func (p ExecParams) Normalize() (ExecParams, error) {
	if p.ID.IsZero() {
		p.ID = NewExecID()
	}
	m := NewStart(p)
	m.Instance, m.Attempt = ID{1}, 1
	if err := m.check(); err != nil {
		return p, Errorf(CodeBadRequest, "%v", err)
	}
	if n := max(len(p.Argv), len(p.Env)); n > MaxStartElements {
		return p, Errorf(CodeBadRequest, "%d words: at most %d are allowed", n, MaxStartElements)
	}
	return m.Params(), nil
}

// Attach is the first message of a channel that comes back to an exec.
type Attach struct {
	Deadline uint64 `cbor:"2,keyasint"`
	ID       ExecID `cbor:"3,keyasint"`
	Instance ID     `cbor:"4,keyasint"`
	Attempt  uint64 `cbor:"5,keyasint"`
	After    uint64 `cbor:"6,keyasint"`
	Control  bool   `cbor:"7,keyasint,omitempty"`
	LogEpoch *ID    `cbor:"8,keyasint,omitempty"` // of the log that After counts in
	Owner    string `cbor:"9,keyasint,omitempty"` // the exec's principal; absent: whichever has the id
	// Generation is that of the control which a returning client had: whoever took it over
	// since keeps it. Absent: the client is not returning, and takes the control over.
	Generation uint64 `cbor:"10,keyasint,omitempty"`
}

// Type is TypeAttach.
func (*Attach) Type() Type { return TypeAttach }

func (m *Attach) check() error {
	switch {
	case m.ID.IsZero():
		return errors.New("no exec id")
	case m.Instance == ID{}:
		return errors.New("no instance id")
	case m.Attempt == 0:
		return errors.New("no attempt number")
	}
	return checkOwner(m.Owner)
}

// Started is always the first message of the answer to Start and Attach.
type Started struct {
	ID          ExecID            `cbor:"2,keyasint"`
	LogEpoch    ID                `cbor:"3,keyasint"` // another one means another log: numbers begin anew
	Generation  uint64            `cbor:"4,keyasint"` // of the controller
	Window      uint64            `cbor:"5,keyasint"` // unacknowledged output the executor keeps, bytes
	InputLimit  uint64            `cbor:"6,keyasint"` // as in InputAck
	InputOffset uint64            `cbor:"7,keyasint"` // how much input was taken over: where to go on
	Sandbox     SandboxMode       `cbor:"8,keyasint"`
	Roots       []cbor.ByteString `cbor:"9,keyasint,omitempty"`
	GraceMillis uint64            `cbor:"10,keyasint"`
	Unix        int64             `cbor:"11,keyasint"` // start time, milliseconds
	TTY         bool              `cbor:"12,keyasint,omitempty"`
	InputClosed bool              `cbor:"13,keyasint,omitempty"` // nothing more is read from stdin
	Limits      *Limits           `cbor:"14,keyasint,omitempty"` // in force
	View        View              `cbor:"15,keyasint,omitempty"`
	Last        uint64            `cbor:"16,keyasint,omitempty"` // highest number in the log by now
	Owner       string            `cbor:"17,keyasint,omitempty"` // the exec's principal
	Detach      bool              `cbor:"18,keyasint,omitempty"`
	OnFull      OnFull            `cbor:"19,keyasint,omitempty"` // in force
	Network     *Network          `cbor:"20,keyasint,omitempty"` // in force; absent: the executor is too old to say
}

// Type is TypeStarted.
func (*Started) Type() Type { return TypeStarted }

func (m *Started) check() error {
	switch {
	case m.ID.IsZero():
		return errors.New("no exec id")
	case m.LogEpoch == ID{}:
		return errors.New("no log epoch")
	case m.Window == 0:
		return errors.New("no window")
	case !m.Sandbox.valid():
		return errors.New("unknown sandbox mode")
	case m.View != 0 && !m.View.valid():
		return errors.New("unknown view")
	case m.InputLimit < m.InputOffset:
		return errors.New("input limit below its offset")
	case m.OnFull > OnFullDrop:
		return errors.New("unknown choice for a full log")
	}
	if err := m.Network.check(); err != nil {
		return err
	}
	return checkOwner(m.Owner)
}

// Info is what Started says, for the holder of a handle.
func (m *Started) Info() ExecInfo {
	i := ExecInfo{
		ID: m.ID, Started: time.UnixMilli(m.Unix), Sandbox: m.Sandbox, Roots: plainStrings(m.Roots),
		View: m.View, Grace: millis(m.GraceMillis), TTY: m.TTY, Attached: true,
		Owner: m.Owner, Detach: m.Detach, OnFull: m.OnFull, Last: m.Last, Input: m.InputOffset, Network: m.Network.value(),
	}
	if m.Limits != nil {
		i.Limits = *m.Limits
	}
	return i
}

// SetInfo fills in what Info reads.
func (m *Started) SetInfo(i ExecInfo) {
	m.ID, m.Unix, m.Sandbox, m.Roots = i.ID, i.Started.UnixMilli(), i.Sandbox, byteStrings(i.Roots)
	m.GraceMillis, m.TTY, m.View = toMillis(i.Grace), i.TTY, i.View
	m.Owner, m.Detach, m.OnFull, m.Last, m.InputOffset = i.Owner, i.Detach, i.OnFull, i.Last, i.Input
	m.Network = i.Network.pointer()
	if i.Limits != (Limits{}) {
		m.Limits = &i.Limits
	}
}

func byteStrings(in []string) []cbor.ByteString {
	if len(in) == 0 {
		return nil
	}
	out := make([]cbor.ByteString, len(in))
	for i, s := range in {
		out[i] = cbor.ByteString(s)
	}
	return out
}

func plainStrings(in []cbor.ByteString) []string {
	if len(in) == 0 {
		return nil
	}
	out := make([]string, len(in))
	for i, s := range in {
		out[i] = string(s)
	}
	return out
}

// cutText shortens a text for people to MaxText bytes of valid UTF-8.
func cutText(s string) string { return cutTo(s, MaxText) }

func cutTo(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "?")
}
