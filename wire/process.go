package wire

import (
	"errors"
	"time"
)

// Output is one chunk of the log. Data follows the map as it is, so that neither codec
// copies it.
type Output struct {
	Seq    uint64       `cbor:"2,keyasint"`
	Stream OutputStream `cbor:"3,keyasint"`
	Data   []byte       `cbor:"-"`
}

// Type is TypeOutput.
func (*Output) Type() Type { return TypeOutput }

func (m *Output) check() error {
	switch {
	case m.Seq == 0:
		return errors.New("no sequence number")
	case m.Stream < Stdout || m.Stream > Terminal:
		return errors.New("unknown stream")
	}
	return nil
}

// appendOutputHead must equal what the codec makes of the map.
func appendOutputHead(b []byte, m *Output) []byte {
	b = append(b, 0xa3, 1, 0x18, byte(TypeOutput), 2)
	b = appendUint(b, m.Seq)
	return append(b, 3, byte(m.Stream))
}

// Input is stdin for the command. Offset is where Data begins in the whole input.
type Input struct {
	Offset uint64 `cbor:"2,keyasint"`
	Data   []byte `cbor:"-"`
}

// Type is TypeInput.
func (*Input) Type() Type { return TypeInput }

func (m *Input) check() error {
	if m.Offset+uint64(len(m.Data)) < m.Offset {
		return errors.New("offset too large")
	}
	return nil
}

func appendInputHead(b []byte, m *Input) []byte {
	return appendUint(append(b, 0xa2, 1, byte(TypeInput), 2), m.Offset)
}

// InputEnd says that the input has Offset bytes in all.
type InputEnd struct {
	Offset uint64 `cbor:"2,keyasint"`
}

// Type is TypeInputEnd.
func (*InputEnd) Type() Type   { return TypeInputEnd }
func (*InputEnd) check() error { return nil }

// InputAck gives credit: Offset bytes were written to the command, and the client may
// send up to Limit. Closed: the command reads no more, keep the rest.
type InputAck struct {
	Offset uint64 `cbor:"2,keyasint"`
	Limit  uint64 `cbor:"3,keyasint"`
	Closed bool   `cbor:"4,keyasint,omitempty"`
}

// Type is TypeInputAck.
func (*InputAck) Type() Type { return TypeInputAck }

func (m *InputAck) check() error {
	if m.Limit < m.Offset {
		return errors.New("limit below offset")
	}
	return nil
}

// Ack says that the controller's consumer took everything up to Seq.
type Ack struct {
	Seq uint64 `cbor:"2,keyasint"`
}

// Type is TypeAck.
func (*Ack) Type() Type   { return TypeAck }
func (*Ack) check() error { return nil }

// Resize, SignalMessage and Terminate carry a request number that is answered by a Done
// and acts once, however often it arrives.

// Resize sets the terminal's size.
type Resize struct {
	Request uint64  `cbor:"2,keyasint"`
	Size    WinSize `cbor:"3,keyasint"`
}

// Type is TypeResize.
func (*Resize) Type() Type     { return TypeResize }
func (m *Resize) check() error { return checkRequest(m.Request) }

// SignalMessage sends a signal.
type SignalMessage struct {
	Request uint64 `cbor:"2,keyasint"`
	Signal  Signal `cbor:"3,keyasint"`
}

// Type is TypeSignal.
func (*SignalMessage) Type() Type { return TypeSignal }

func (m *SignalMessage) check() error {
	if m.Signal.Number() == 0 {
		return errors.New("unknown signal")
	}
	return checkRequest(m.Request)
}

// Terminate ends the command: TERM, and KILL after the grace.
type Terminate struct {
	Request     uint64 `cbor:"2,keyasint"`
	GraceMillis uint64 `cbor:"3,keyasint,omitempty"` // zero: what Start said
}

// Type is TypeTerminate.
func (*Terminate) Type() Type     { return TypeTerminate }
func (m *Terminate) check() error { return checkRequest(m.Request) }

// NewTerminate is a Terminate with its grace.
func NewTerminate(request uint64, grace time.Duration) *Terminate {
	return &Terminate{Request: request, GraceMillis: toMillis(grace)}
}

// Grace is the time between TERM and KILL, zero where Start's counts.
func (m *Terminate) Grace() time.Duration { return millis(m.GraceMillis) }

func checkRequest(n uint64) error {
	if n == 0 {
		return errors.New("no request number")
	}
	return nil
}

// Done answers one request; code zero means that it was carried out.
type Done struct {
	Request uint64 `cbor:"2,keyasint"`
	Code    Code   `cbor:"3,keyasint,omitempty"`
	Text    string `cbor:"4,keyasint,omitempty"`
}

// Type is TypeDone.
func (*Done) Type() Type { return TypeDone }

func (m *Done) check() error {
	if err := checkRequest(m.Request); err != nil {
		return err
	}
	return checkCode(m.Code, m.Text, false)
}

// NewDone is the answer to a request that ended with err.
func NewDone(request uint64, err error) *Done {
	if err == nil {
		return &Done{Request: request}
	}
	return &Done{Request: request, Code: CodeOf(err), Text: cutText(err.Error())}
}

// Err is nil when the request was carried out.
func (m *Done) Err() error {
	if m.Code == 0 {
		return nil
	}
	return &Error{Code: m.Code, Text: m.Text}
}

// GapMessage says that output From to To is no longer kept.
type GapMessage struct {
	From  uint64 `cbor:"2,keyasint"`
	To    uint64 `cbor:"3,keyasint"`
	Bytes uint64 `cbor:"4,keyasint"`
}

// Type is TypeGap.
func (*GapMessage) Type() Type { return TypeGap }

func (m *GapMessage) check() error {
	if m.From == 0 || m.To < m.From {
		return errors.New("empty gap")
	}
	return nil
}

// Exit is the last message about a command. Its number is above that of all output.
type Exit struct {
	Seq    uint64     `cbor:"2,keyasint"`
	Status ExitStatus `cbor:"3,keyasint"`
	// Denials are those of Status, which has none on the wire.
	Denials []Denial `cbor:"4,keyasint,omitempty"`
}

// NewExit is a status as a message.
func NewExit(seq uint64, status ExitStatus) *Exit {
	m := &Exit{Seq: seq, Status: status, Denials: status.Denials}
	m.Status.Denials = nil
	if len(m.Denials) > MaxDenials {
		m.Denials = m.Denials[:MaxDenials]
	}
	return m
}

// Ended is the inverse of NewExit.
func (m *Exit) Ended() *ExitStatus {
	status := m.Status
	status.Denials = m.Denials
	return &status
}

// Type is TypeExit.
func (*Exit) Type() Type { return TypeExit }

func (m *Exit) check() error {
	if m.Seq == 0 {
		return errors.New("no sequence number")
	}
	if len(m.Denials) > MaxDenials {
		return errors.New("too many denials")
	}
	for i := range m.Denials {
		if err := m.Denials[i].check(); err != nil {
			return err
		}
	}
	return checkExit(&m.Status)
}

func checkExit(e *ExitStatus) error {
	switch {
	case !e.Cause.valid():
		return errors.New("unknown cause")
	case e.Hit.check() != nil:
		return e.Hit.check()
	case e.Signal != "" && e.Signal.Number() == 0:
		return errors.New("unknown signal")
	case e.Code < 0 || e.Code > 255:
		return errors.New("exit code outside 0 to 255")
	case e.Signal == "" && (e.Cause == CauseSignalled || e.Cause == CauseExecutorLost && e.Code != 0):
		return errors.New("ended by a signal, but by none")
	}
	return nil
}

// Superseded tells a controller that a newer one has the exec; its handle only ends.
type Superseded struct {
	Generation uint64 `cbor:"2,keyasint"`
}

// Type is TypeSuperseded.
func (*Superseded) Type() Type   { return TypeSuperseded }
func (*Superseded) check() error { return nil }
