package wire

import "errors"

// Dial is the frame with which a client asks its relay for a circuit. What follows it
// on the stream is for the executor, and may be sent at once.
type Dial struct {
	Executor Bytes32 `cbor:"2,keyasint"` // public key
	// Keys 3 (tag), 4 (hop count), 5 (origin relay) and 6 (generation) are reserved.
}

// Type is TypeDial.
func (*Dial) Type() Type { return TypeDial }

func (m *Dial) check() error {
	if m.Executor == [32]byte{} {
		return errors.New("no executor key")
	}
	return nil
}

// Incoming is the frame with which a relay begins a circuit on an executor's connection.
type Incoming struct {
	Circuit uint64  `cbor:"2,keyasint"`
	Client  Bytes32 `cbor:"3,keyasint"` // as the relay saw it: a hint for limits, never an identity
	// Keys 4 (limits), 5 (origin relay) and 6 (generation) are reserved.
}

// Type is TypeIncoming.
func (*Incoming) Type() Type   { return TypeIncoming }
func (*Incoming) check() error { return nil }

// DialReply is the one frame a relay puts before the spliced bytes. Code zero means
// that the circuit stands.
type DialReply struct {
	Code        Code   `cbor:"2,keyasint,omitempty"`
	Text        string `cbor:"3,keyasint,omitempty"`
	RetryMillis uint64 `cbor:"4,keyasint,omitempty"`
	Circuit     uint64 `cbor:"5,keyasint,omitempty"`
	// Key 6 (limits) is reserved.
}

// Type is TypeDialReply.
func (*DialReply) Type() Type { return TypeDialReply }

func (m *DialReply) check() error { return checkCode(m.Code, m.Text, false) }

// Err is nil when the circuit stands.
func (m *DialReply) Err() error {
	if m.Code == 0 {
		return nil
	}
	return &Error{Code: m.Code, Text: m.Text, RetryAfter: millis(m.RetryMillis)}
}

// DialRefusal is e as the answer to a Dial.
func DialRefusal(e *Error) *DialReply {
	return &DialReply{Code: e.Code, Text: cutText(e.Text), RetryMillis: toMillis(e.RetryAfter)}
}
