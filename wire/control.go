package wire

import (
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

// Verb is what a Control conversation asks for.
type Verb uint8

// The verbs. VerbList is answered by Lists, the others by a Done; any of them by Refused.
const (
	VerbList      Verb = 1 + iota
	VerbSignal         // as SignalMessage
	VerbTerminate      // as Terminate
	VerbRemove         // forget the result and the output of an exec that has ended
)

// Control is the first message of a channel that asks about execs, or acts on one without a
// handle on it, so that nobody loses theirs.
type Control struct {
	Deadline uint64 `cbor:"2,keyasint"`
	Verb     Verb   `cbor:"3,keyasint"`

	// The rest is for verbs about one exec.
	ID          *ExecID `cbor:"4,keyasint,omitempty"`
	Owner       string  `cbor:"5,keyasint,omitempty"` // absent: whichever has the id
	Instance    *ID     `cbor:"6,keyasint,omitempty"` // of the client process
	Request     uint64  `cbor:"7,keyasint,omitempty"` // as in Resize: acts once
	Signal      Signal  `cbor:"8,keyasint,omitempty"`
	GraceMillis uint64  `cbor:"9,keyasint,omitempty"` // of VerbTerminate
}

// Type is TypeControl.
func (*Control) Type() Type { return TypeControl }

func (m *Control) check() error {
	if m.Verb == 0 {
		return errors.New("no verb")
	}
	if m.Verb == VerbSignal && m.Signal.Number() == 0 {
		return errors.New("unknown signal")
	}
	if m.Verb >= VerbSignal && m.Verb <= VerbRemove {
		switch {
		case m.ID == nil || m.ID.IsZero():
			return errors.New("no exec id")
		case m.Instance == nil || *m.Instance == ID{}:
			return errors.New("no instance id")
		case m.Request == 0:
			return errors.New("no request number")
		}
	}
	return checkOwner(m.Owner)
}

// NewTerminateControl is a Control of VerbTerminate with its grace; the fields that every
// Control has are the caller's to set.
func NewTerminateControl(grace time.Duration) *Control {
	return &Control{Verb: VerbTerminate, GraceMillis: toMillis(grace)}
}

// Grace is the time between TERM and KILL, zero where Start's counts.
func (m *Control) Grace() time.Duration { return millis(m.GraceMillis) }

// checkOwner bounds the name of a principal.
func checkOwner(s string) error {
	if len(s) > MaxOwner {
		return errors.New("owner's name too long")
	}
	return nil
}

// List answers a Control of VerbList, in as many messages as it takes.
type List struct {
	Execs []ListItem `cbor:"2,keyasint"`
	More  bool       `cbor:"3,keyasint,omitempty"` // another List follows
}

// ListItem is one exec of a List.
type ListItem struct {
	ID          ExecID            `cbor:"1,keyasint"`
	Unix        int64             `cbor:"2,keyasint"`
	Sandbox     SandboxMode       `cbor:"3,keyasint"`
	Roots       []cbor.ByteString `cbor:"4,keyasint,omitempty"`
	GraceMillis uint64            `cbor:"5,keyasint,omitempty"`
	TTY         bool              `cbor:"6,keyasint,omitempty"`
	Attached    bool              `cbor:"7,keyasint,omitempty"`
	Exit        *ExitStatus       `cbor:"8,keyasint,omitempty"`
	Owner       string            `cbor:"9,keyasint,omitempty"`
	Command     string            `cbor:"10,keyasint,omitempty"` // for people, shortened
	Detach      bool              `cbor:"11,keyasint,omitempty"`
	EndedUnix   int64             `cbor:"12,keyasint,omitempty"` // milliseconds
	Last        uint64            `cbor:"13,keyasint,omitempty"`
}

// Type is TypeList.
func (*List) Type() Type { return TypeList }

func (m *List) check() error {
	for i := range m.Execs {
		e := &m.Execs[i]
		if e.ID.IsZero() || !e.Sandbox.valid() {
			return fmt.Errorf("exec %d of the list has no id or sandbox mode", i)
		}
		if e.Exit != nil {
			if err := checkExit(e.Exit); err != nil {
				return err
			}
		}
		if len(e.Command) > MaxText {
			return errors.New("text too long")
		}
		if err := checkOwner(e.Owner); err != nil {
			return err
		}
	}
	return nil
}

// NewListItem is i as an item of a List.
func NewListItem(i ExecInfo) ListItem {
	item := ListItem{
		ID: i.ID, Unix: i.Started.UnixMilli(), Sandbox: i.Sandbox, Roots: byteStrings(i.Roots),
		GraceMillis: toMillis(i.Grace), TTY: i.TTY, Attached: i.Attached, Exit: i.Exit,
		Owner: i.Owner, Command: cutText(i.Command), Detach: i.Detach, Last: i.Last,
	}
	if !i.Ended.IsZero() {
		item.EndedUnix = i.Ended.UnixMilli()
	}
	return item
}

// Info is the inverse of NewListItem.
func (l ListItem) Info() ExecInfo {
	info := ExecInfo{
		ID: l.ID, Started: time.UnixMilli(l.Unix), Sandbox: l.Sandbox, Roots: plainStrings(l.Roots),
		Grace: millis(l.GraceMillis), TTY: l.TTY, Attached: l.Attached, Exit: l.Exit,
		Owner: l.Owner, Command: l.Command, Detach: l.Detach, Last: l.Last,
	}
	if l.EndedUnix != 0 {
		info.Ended = time.UnixMilli(l.EndedUnix)
	}
	return info
}
