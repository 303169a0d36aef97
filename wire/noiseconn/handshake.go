package noiseconn

import (
	"crypto/mlkem"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	"github.com/flynn/noise"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// The handshake without I/O: bytes in, bytes out. Each state is consumed by its one method;
// after any error there is nothing to go on with.
//
//	initiator                                      responder
//	startInitiator  -- m1: e, es, KEM key -------->  startResponder
//	sentM1          <- m2: e, ee, KEM secret, epoch  (answers m1)
//	gotM2           -- m3: s, se, psk, hello ----->  sentM2
//	secrets                                          secrets

// Sizes of the messages; the first two have one size only.
const (
	m1Size     = 32 + mlkem.EncapsulationKeySize768 + 16
	m2Size     = 32 + mlkem.CiphertextSize768 + len(wire.ID{}) + 16
	m3Overhead = 32 + 16 + 16
	m3Max      = m3Overhead + wire.MaxHello
)

var errHandshake = errors.New("handshake failed")

// errOtherKey is answerM1's for a message that does not open. A responder with two keys tries the other.
var errOtherKey = fmt.Errorf("%w: the first message is not for this key, connection and version", errHandshake)

// secrets are what a finished handshake leaves.
type secrets struct {
	send, receive [32]byte
	hash          [32]byte // of the whole transcript, both sides' alike
	peer          [32]byte
}

// machine is the library's state with its key agreement.
type machine struct {
	state *noise.HandshakeState
	suite noise.CipherSuite
}

func newMachine(initiator bool, static *keys.PrivateKey, peer, prologue []byte, random io.Reader) (*machine, error) {
	if static == nil {
		return nil, errors.New("handshake without a key of its own")
	}
	if random == nil {
		random = rand.Reader
	}
	dh := &keptDH{}
	suite := noise.NewCipherSuite(dh, noise.CipherAESGCM, noise.HashSHA256)
	// A reader that lacks the pre-shared key would take an empty one for good. A random
	// one makes a forgotten setPSK fail closed.
	var placeholder [32]byte
	rand.Read(placeholder[:])
	state, err := noise.NewHandshakeState(noise.Config{
		CipherSuite: suite, Random: random, Pattern: pattern(), Initiator: initiator, Prologue: prologue,
		PresharedKey: placeholder[:], PresharedKeyPlacement: 3,
		StaticKeypair: dh.add(static.ECDH()), PeerStatic: peer,
	})
	if err != nil {
		return nil, err
	}
	return &machine{state: state, suite: suite}, nil
}

// consume takes the machine out of a state. The library rolls back after some errors and
// would go on; with its machine gone a state cannot be used a second time.
func consume(from **machine) (*machine, error) {
	m := *from
	*from = nil
	if m == nil {
		return nil, fmt.Errorf("%w: step taken twice", errHandshake)
	}
	return m, nil
}

// write makes the handshake message of this index.
func (m *machine) write(index int, payload []byte) ([]byte, *noise.CipherState, *noise.CipherState, error) {
	if m.state.MessageIndex() != index {
		return nil, nil, nil, errHandshake
	}
	return m.state.WriteMessage(nil, payload)
}

func (m *machine) read(index int, msg []byte) ([]byte, *noise.CipherState, *noise.CipherState, error) {
	if m.state.MessageIndex() != index {
		return nil, nil, nil, errHandshake
	}
	return m.state.ReadMessage(nil, msg)
}

// finish names the two directions: the library returns initiator-to-responder first, to
// both sides.
func (m *machine) finish(initiator bool, toResponder, toInitiator *noise.CipherState) (*secrets, error) {
	if toResponder == nil || toInitiator == nil {
		return nil, errHandshake
	}
	s := &secrets{}
	if initiator {
		s.send, s.receive = toResponder.UnsafeKey(), toInitiator.UnsafeKey()
	} else {
		s.send, s.receive = toInitiator.UnsafeKey(), toResponder.UnsafeKey()
	}
	copy(s.hash[:], m.state.ChannelBinding())
	copy(s.peer[:], m.state.PeerStatic())
	return s, nil
}

type sentM1 struct {
	machine *machine
	kem     *mlkem.DecapsulationKey768
}

// startInitiator makes m1. Peer is the key that the responder must have.
func startInitiator(static *keys.PrivateKey, peer [32]byte, prologue []byte, random io.Reader, kem *mlkem.DecapsulationKey768) (*sentM1, []byte, error) {
	if peer == ([32]byte{}) {
		return nil, nil, errors.New("handshake without the peer's key")
	}
	if kem == nil {
		var err error
		if kem, err = mlkem.GenerateKey768(); err != nil {
			return nil, nil, err
		}
	}
	m, err := newMachine(true, static, peer[:], prologue, random)
	if err != nil {
		return nil, nil, err
	}
	m1, _, _, err := m.write(0, kem.EncapsulationKey().Bytes())
	if err != nil {
		return nil, nil, err
	}
	return &sentM1{m, kem}, m1, nil
}

type gotM2 struct {
	machine *machine
	epoch   wire.ID
}

func (s *sentM1) readM2(m2 []byte) (*gotM2, error) {
	m, err := consume(&s.machine)
	if err != nil {
		return nil, err
	}
	if len(m2) != m2Size {
		return nil, fmt.Errorf("%w: second message of %d bytes, want %d", errHandshake, len(m2), m2Size)
	}
	payload, _, _, err := m.read(1, m2)
	if err != nil {
		return nil, fmt.Errorf("%w: the answer does not come from the expected key", errHandshake)
	}
	if len(payload) != mlkem.CiphertextSize768+len(wire.ID{}) {
		return nil, errHandshake
	}
	ciphertext, epoch := payload[:mlkem.CiphertextSize768], payload[mlkem.CiphertextSize768:]
	shared, err := s.kem.Decapsulate(ciphertext)
	if err != nil {
		return nil, errHandshake
	}
	psk, err := kemPSK(shared, s.kem.EncapsulationKey().Bytes(), ciphertext)
	if err != nil {
		return nil, err
	}
	if err := m.state.SetPresharedKey(psk); err != nil {
		return nil, err
	}
	return &gotM2{m, wire.ID(epoch)}, nil
}

func (s *gotM2) writeM3(hello []byte) ([]byte, *secrets, error) {
	if len(hello) > wire.MaxHello {
		return nil, nil, fmt.Errorf("hello of %d bytes: at most %d are allowed", len(hello), wire.MaxHello)
	}
	m, err := consume(&s.machine)
	if err != nil {
		return nil, nil, err
	}
	m3, a, b, err := m.write(2, hello)
	if err != nil {
		return nil, nil, err
	}
	out, err := m.finish(true, a, b)
	return m3, out, err
}

type sentM2 struct {
	machine *machine
}

// answerM1 reads m1 and makes m2. encaps is [encapsulate].
func answerM1(m1 []byte, static *keys.PrivateKey, prologue []byte, epoch wire.ID, random io.Reader,
	encaps func(ek []byte) (shared, ciphertext []byte, err error),
) (*sentM2, []byte, error) {
	if len(m1) != m1Size {
		return nil, nil, fmt.Errorf("%w: first message of %d bytes, want %d", errHandshake, len(m1), m1Size)
	}
	m, err := newMachine(false, static, nil, prologue, random)
	if err != nil {
		return nil, nil, err
	}
	ek, _, _, err := m.read(0, m1)
	if err != nil {
		return nil, nil, errOtherKey
	}
	shared, ciphertext, err := encaps(ek)
	if err != nil {
		return nil, nil, errHandshake
	}
	psk, err := kemPSK(shared, ek, ciphertext)
	if err != nil {
		return nil, nil, err
	}
	if err := m.state.SetPresharedKey(psk); err != nil {
		return nil, nil, err
	}
	m2, _, _, err := m.write(1, append(append(make([]byte, 0, m2Size), ciphertext...), epoch[:]...))
	if err != nil {
		return nil, nil, err
	}
	return &sentM2{m}, m2, nil
}

func (s *sentM2) readM3(m3 []byte) (hello []byte, out *secrets, err error) {
	m, err := consume(&s.machine)
	if err != nil {
		return nil, nil, err
	}
	if len(m3) < m3Overhead || len(m3) > m3Max {
		return nil, nil, fmt.Errorf("%w: third message of %d bytes", errHandshake, len(m3))
	}
	hello, a, b, err := m.read(2, m3)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: the third message does not verify", errHandshake)
	}
	out, err = m.finish(false, a, b)
	return hello, out, err
}
