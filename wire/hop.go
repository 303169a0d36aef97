package wire

import (
	"errors"
	"time"
)

// Role says what a peer of a relay is.
type Role uint8

// The roles.
const (
	RoleExecutor Role = 1 + iota
	RoleClient
)

// HopHello is the payload of the hop handshake's third message: encrypted to the relay,
// and the first thing it reads from a proven key.
type HopHello struct {
	Role     Role         `cbor:"2,keyasint"`
	Versions VersionRange `cbor:"3,keyasint"`
	Name     string       `cbor:"4,keyasint,omitempty"` // wanted by an executor
	Join     *JoinProof   `cbor:"5,keyasint,omitempty"` // of an executor that is not a member yet
	Instance ID           `cbor:"6,keyasint"`           // one per process
	Software string       `cbor:"8,keyasint,omitempty"`
	// Keys 7 (grant) and 9 (features) are reserved.
}

// JoinProof is half of a join token and the announcement that its maker waits for. The relay
// verifies the secret and counts the use before it answers; it cannot make a MAC, because the
// pairing secret is not told to it.
type JoinProof struct {
	Token  ID      `cbor:"1,keyasint"`
	Secret Bytes32 `cbor:"2,keyasint"` // of joining
	MAC    Bytes32 `cbor:"3,keyasint"` // of token, executor key and name under the pairing secret
}

// String leaves the secret out.
func (JoinProof) String() string { return "(join proof, redacted)" }

// GoString is String, for %#v.
func (p JoinProof) GoString() string { return p.String() }

// ID is a random number of 16 bytes: an instance, a session, an epoch.
type ID [16]byte

// UnmarshalCBOR accepts a byte string of 16 bytes and nothing else.
func (id *ID) UnmarshalCBOR(b []byte) error { return fixedBytes(id[:], b) }

// Type is TypeHopHello.
func (*HopHello) Type() Type { return TypeHopHello }

func (m *HopHello) check() error {
	switch {
	case m.Role != RoleExecutor && m.Role != RoleClient:
		return errors.New("unknown role")
	case m.Instance == ID{}:
		return errors.New("no instance id")
	case len(m.Name) > 255 || len(m.Software) > 255:
		return errors.New("name too long")
	case m.Join != nil && (m.Role != RoleExecutor || m.Join.Token == ID{}):
		return errors.New("join proof of a client, or without a token")
	}
	return nil
}

// HopWelcome is the relay's first record: the peer is admitted.
type HopWelcome struct {
	Versions   VersionRange `cbor:"2,keyasint"`
	Connection uint64       `cbor:"3,keyasint"`
	Tenant     string       `cbor:"4,keyasint,omitempty"`
	Name       string       `cbor:"5,keyasint,omitempty"` // under which the relay lists it
	Generation uint64       `cbor:"6,keyasint,omitempty"` // of an executor's registration
	Limits     HopLimits    `cbor:"7,keyasint"`
	Time       int64        `cbor:"8,keyasint"`           // the relay's clock, Unix milliseconds, a hint
	NextRelay  *Bytes32     `cbor:"9,keyasint,omitempty"` // the key that is going to replace the relay's, and is accepted already
}

// HopLimits are the relay's limits for this peer; zero means that none is announced.
type HopLimits struct {
	Circuits       uint32 `cbor:"1,keyasint,omitempty"`
	BytesPerSecond uint64 `cbor:"2,keyasint,omitempty"`
	IdleMillis     uint64 `cbor:"3,keyasint,omitempty"`
	CircuitMillis  uint64 `cbor:"4,keyasint,omitempty"` // longest life of a circuit
	Header         uint32 `cbor:"5,keyasint,omitempty"` // bytes of a frame
}

// Type is TypeHopWelcome.
func (*HopWelcome) Type() Type { return TypeHopWelcome }

func (m *HopWelcome) check() error {
	switch {
	case len(m.Name) > 255 || len(m.Tenant) > 255:
		return errors.New("name too long")
	case m.NextRelay != nil && *m.NextRelay == [32]byte{}:
		return errors.New("no next relay key")
	}
	return nil
}

// HopNextKey tells a peer that is connected what HopWelcome.NextRelay tells one that comes: the key that is
// going to replace the relay's.
type HopNextKey struct {
	Key Bytes32 `cbor:"2,keyasint"`
}

// Type is TypeHopNextKey.
func (*HopNextKey) Type() Type { return TypeHopNextKey }

func (m *HopNextKey) check() error {
	if m.Key == [32]byte{} {
		return errors.New("no next relay key")
	}
	return nil
}

// HopNotice is something that the relay tells a peer which has no effect on the connection, such
// as that another machine came with its key.
type HopNotice struct {
	Code Code   `cbor:"2,keyasint"`
	Text string `cbor:"3,keyasint,omitempty"`
}

// Type is TypeHopNotice.
func (*HopNotice) Type() Type { return TypeHopNotice }

func (m *HopNotice) check() error { return checkCode(m.Code, m.Text, true) }

// HopGoaway is a relay's word that the connection is going to end, since it is shut down. What goes on
// may still end in order; nothing new begins. Wait is for afterwards: a time for each peer, so that they do not come
// back all at once.
type HopGoaway struct {
	Code       Code   `cbor:"2,keyasint"`
	Text       string `cbor:"3,keyasint,omitempty"`
	WaitMillis uint64 `cbor:"4,keyasint,omitempty"`
}

// Type is TypeHopGoaway.
func (*HopGoaway) Type() Type { return TypeHopGoaway }

func (m *HopGoaway) check() error { return checkCode(m.Code, m.Text, true) }

// Err is the goaway as the reason why the connection ended.
func (m *HopGoaway) Err() *Error {
	return &Error{Code: m.Code, Text: m.Text, RetryAfter: millis(m.WaitMillis)}
}

// HopPing asks for a HopPong with the same number. The dialling side sends one per
// heartbeat (a record is padded to more than the 42 bytes that a stateless reset needs);
// the relay sends one to find out whether an executor is still there.
type HopPing struct {
	Number uint64 `cbor:"2,keyasint"`
}

// Type is TypeHopPing.
func (*HopPing) Type() Type   { return TypeHopPing }
func (*HopPing) check() error { return nil }

// HopPong answers a HopPing.
type HopPong struct {
	Number uint64 `cbor:"2,keyasint"`
}

// Type is TypeHopPong.
func (*HopPong) Type() Type   { return TypeHopPong }
func (*HopPong) check() error { return nil }

// Refused ends a conversation, or answers its first message, with a reason.
type Refused struct {
	Code        Code   `cbor:"2,keyasint"`
	Text        string `cbor:"3,keyasint,omitempty"`
	RetryMillis uint64 `cbor:"4,keyasint,omitempty"`
}

// Type is TypeRefused.
func (*Refused) Type() Type { return TypeRefused }

func (m *Refused) check() error { return checkCode(m.Code, m.Text, true) }

// Err is the refusal as an error.
func (m *Refused) Err() *Error {
	return &Error{Code: m.Code, Text: m.Text, RetryAfter: millis(m.RetryMillis)}
}

// Refusal is e as a message; its text is cut to MaxText.
func Refusal(e *Error) *Refused {
	return &Refused{Code: e.Code, Text: cutText(e.Text), RetryMillis: toMillis(e.RetryAfter)}
}

// checkCode allows codes that this build does not know: newer peers have more.
func checkCode(c Code, text string, required bool) error {
	switch {
	case c == 0 && required:
		return errors.New("no code")
	case len(text) > MaxText:
		return errors.New("text too long")
	}
	return nil
}

// millis turns a peer's number into a duration without overflow.
func millis(ms uint64) time.Duration {
	const most = uint64(365 * 24 * time.Hour / time.Millisecond)
	return time.Duration(min(ms, most)) * time.Millisecond
}

// toMillis rounds up, so that a short duration does not become none.
func toMillis(d time.Duration) uint64 {
	if d <= 0 {
		return 0
	}
	return uint64((d + time.Millisecond - 1) / time.Millisecond)
}
