package wire

import "errors"

// Hello is the payload of the end-to-end handshake's third message.
type Hello struct {
	Versions VersionRange `cbor:"2,keyasint"`
	Random   Bytes32      `cbor:"3,keyasint"` // half of the channel secret's input
	Replaces *ID          `cbor:"4,keyasint,omitempty"`
	Software string       `cbor:"5,keyasint,omitempty"`
	// Keys 6 (grant), 7 (features) and 8 (label) are reserved.
}

// Type is TypeHello.
func (*Hello) Type() Type { return TypeHello }

func (m *Hello) check() error {
	switch {
	case m.Random == [32]byte{}:
		return errors.New("no random")
	case len(m.Software) > 255:
		return errors.New("software name too long")
	}
	return nil
}

// Welcome is the executor's first record on channel 0: the client is admitted.
type Welcome struct {
	Versions VersionRange  `cbor:"2,keyasint"`
	Session  ID            `cbor:"3,keyasint"`
	Random   Bytes32       `cbor:"4,keyasint"`
	Limits   SessionLimits `cbor:"5,keyasint"`
	Next     *Bytes32      `cbor:"10,keyasint,omitempty"` // key that is going to replace the executor's
	Previous *Bytes32      `cbor:"11,keyasint,omitempty"` // key that the executor's is going to replace
	// Keys 6 (policy), 7 (not after), 8 (features) and 9 (labels) are reserved.
}

// SessionLimits are the executor's limits for this client.
type SessionLimits struct {
	Message     uint64 `cbor:"1,keyasint"`           // bytes of a message but Start
	Window      uint64 `cbor:"2,keyasint"`           // unacknowledged output of an exec, bytes
	GraceMillis uint64 `cbor:"3,keyasint,omitempty"` // the longest detach grace
	Sandbox     uint8  `cbor:"4,keyasint"`           // the widest SandboxMode
}

// Type is TypeWelcome.
func (*Welcome) Type() Type { return TypeWelcome }

func (m *Welcome) check() error {
	switch {
	case m.Session == ID{}:
		return errors.New("no session id")
	case m.Random == [32]byte{}:
		return errors.New("no random")
	case m.Limits.Message == 0 || m.Limits.Window == 0:
		return errors.New("no limits")
	case !SandboxMode(m.Limits.Sandbox).valid():
		return errors.New("unknown sandbox mode")
	case m.Next != nil && *m.Next == [32]byte{}, m.Previous != nil && *m.Previous == [32]byte{}:
		return errors.New("no key where one is announced")
	}
	return nil
}

// Ping is sent by both ends of every channel each PingInterval. Its clock is the
// sender's session clock in milliseconds: one that is PingLag behind the receiver's was
// held back, and ends the channel.
type Ping struct {
	Clock uint64 `cbor:"2,keyasint"`
}

// Type is TypePing.
func (*Ping) Type() Type   { return TypePing }
func (*Ping) check() error { return nil }
