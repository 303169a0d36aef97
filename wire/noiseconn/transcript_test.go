package noiseconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// transcript is one whole conversation, byte for byte as a relay sees it, made by the
// reference. With the vector's keys and randomness either side of the product can be put
// opposite the recorded bytes again and again, so every change to them can be tried.
type transcript struct {
	v           *handshakeVector
	toResponder []byte
	toInitiator []byte
	// m3End is where the initiator's third message ends, m2End the responder's second.
	m3End, m2End int
	// Made once: parsing a key costs as much as using it.
	initiator InitiatorConfig
	responder ResponderConfig
}

// says is what both sides send in records, the clocks of Pings. A FIN follows.
var says = []uint64{1, 2, 3}

func newTranscript(t testing.TB) *transcript {
	t.Helper()
	v := handshakeVectors(t)[0]
	tr := &transcript{v: v, initiator: v.initiatorConfig(t), responder: v.responderConfig(t)}
	frame := func(first []byte, m []byte) []byte {
		return append(binary.BigEndian.AppendUint16(first, uint16(len(m))), m...)
	}
	tr.toResponder = append(frame([]byte{1}, v.M1), frame(nil, v.M3)...)
	tr.toInitiator = frame([]byte{1}, v.M2)
	tr.m3End, tr.m2End = len(tr.toResponder), len(tr.toInitiator)
	there, back := &refRecords{key: v.KeyToResponder}, &refRecords{key: v.KeyToInitiator}
	for _, n := range says {
		tr.toResponder = append(tr.toResponder, there.seal(kindLast, ping(n))...)
		tr.toInitiator = append(tr.toInitiator, back.seal(kindLast, ping(n))...)
	}
	tr.toResponder = append(tr.toResponder, there.seal(kindFin, nil)...)
	tr.toInitiator = append(tr.toInitiator, back.seal(kindFin, nil)...)
	return tr
}

// respond puts the product's responder opposite these bytes of an initiator's, and returns
// the messages it takes and the error it ends with.
func (tr *transcript) respond(t testing.TB, peer []byte) (got []uint64, err error) {
	cfg := tr.responder
	cfg.random = bytes.NewReader(tr.v.ResponderEphemeral)
	p, err := Accept(t.Context(), newScript(peer), cfg)
	if err != nil {
		return nil, err
	}
	if p.Peer() != tr.initiator.Static.Public().Raw() || !bytes.Equal(p.Hello(), tr.v.Hello) {
		t.Fatalf("accepted peer %x with hello %x", p.Peer(), p.Hello())
	}
	c, err := p.Accept(&wire.Ping{})
	if err != nil {
		return nil, err
	}
	return receiveAll(c)
}

// initiate is respond for the other side.
func (tr *transcript) initiate(t testing.TB, peer []byte) (got []uint64, err error) {
	cfg := tr.initiator
	cfg.random = bytes.NewReader(tr.v.InitiatorEphemeral)
	i, err := Dial(t.Context(), newScript(peer), cfg)
	if err != nil {
		return nil, err
	}
	c, err := i.Finish(&wire.Ping{})
	if err != nil {
		return nil, err
	}
	// The reference had another hello, so its record keys are put in place of these.
	c.in.cipher = newRecordCipher([32]byte(tr.v.KeyToInitiator))
	return receiveAll(c)
}

// records is respond and initiate after the handshake, which they then need not repeat.
func records(key []byte) func(testing.TB, []byte) ([]uint64, error) {
	return func(_ testing.TB, peer []byte) ([]uint64, error) {
		return receiveAll(newConn(newScript(peer), nil, nil, newRecordCipher([32]byte(key))))
	}
}

// receiveAll takes Pings until an error, and checks that the error stays.
func receiveAll(c *Conn) (got []uint64, err error) {
	for {
		m, err := c.Recv()
		if err != nil {
			if _, again := c.Recv(); !errors.Is(again, err) {
				return got, errors.Join(errors.New("a second Recv says something else"), err, again)
			}
			return got, err
		}
		p, ok := m.(*wire.Ping)
		if !ok {
			return got, errors.New("not a Ping")
		}
		got = append(got, p.Clock)
	}
}

// wantBroken: nothing but a true beginning was taken, and the end is an error, not a clean end.
func wantBroken(t testing.TB, what string, offset int, got []uint64, err error) {
	t.Helper()
	if err == nil || errors.Is(err, io.EOF) {
		t.Errorf("%s at byte %d: ends with %v, want an error that is not io.EOF", what, offset, err)
	}
	if len(got) > len(says) {
		t.Fatalf("%s at byte %d: got %d messages, only %d were sent", what, offset, len(got), len(says))
	}
	for i, n := range got {
		if n != says[i] {
			t.Errorf("%s at byte %d: message %d is %d, want %d", what, offset, i, n, says[i])
		}
	}
}

type side struct {
	name  string
	bytes []byte
	run   func(testing.TB, []byte) ([]uint64, error)
}

func (tr *transcript) sides() []side {
	return []side{{"responder", tr.toResponder, tr.respond}, {"initiator", tr.toInitiator, tr.initiate}}
}

// phases are the handshakes, up to the length of the first record, and all the records.
func (tr *transcript) phases() []side {
	return []side{
		{"responder's handshake", tr.toResponder[:tr.m3End+2], tr.respond},
		{"initiator's handshake", tr.toInitiator[:tr.m2End+2], tr.initiate},
		{"responder's records", tr.toResponder[tr.m3End:], records(tr.v.KeyToResponder)},
		{"initiator's records", tr.toInitiator[tr.m2End:], records(tr.v.KeyToInitiator)},
	}
}

func TestRecordedConversationIsAcceptedUnchanged(t *testing.T) {
	for _, s := range newTranscript(t).sides() {
		got, err := s.run(t, s.bytes)
		if err != io.EOF || len(got) != len(says) {
			t.Errorf("%s: %v, %v, want %v and io.EOF", s.name, got, err, says)
		}
	}
}

func TestEveryFlippedByteIsAnError(t *testing.T) {
	for _, s := range newTranscript(t).phases() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for i := range s.bytes {
				// 0x80 in the last byte of a public key leaves the same point.
				b := bytes.Clone(s.bytes)
				b[i] ^= 0x80
				got, err := s.run(t, b)
				wantBroken(t, "flip", i, got, err)
			}
		})
	}
}

func TestEveryCutIsAnErrorThatIsNotAnEnd(t *testing.T) {
	for _, s := range newTranscript(t).phases() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			for i := range s.bytes {
				got, err := s.run(t, s.bytes[:i])
				wantBroken(t, "cut", i, got, err)
			}
		})
	}
}

func TestReplayedOrReorderedRecordsAreRefused(t *testing.T) {
	tr := newTranscript(t)
	for _, s := range tr.sides() {
		begin := tr.m3End
		if s.name == "initiator" {
			begin = tr.m2End
		}
		const size = 2 + 256 + tagSize
		head, records := s.bytes[:begin], s.bytes[begin:]
		record := func(i int) []byte { return records[i*size : (i+1)*size] }
		for name, order := range map[string][]int{
			"repeated": {0, 0}, "repeated later": {0, 1, 0}, "swapped": {1, 0}, "left out": {0, 2}, "only the end": {3}, "end early": {0, 3},
		} {
			b := bytes.Clone(head)
			for _, i := range order {
				b = append(b, record(i)...)
			}
			got, err := s.run(t, b)
			wantBroken(t, s.name+", "+name, 0, got, err)
		}
	}
}

func TestReplayedHandshakeDoesNotOpenANewOne(t *testing.T) {
	tr := newTranscript(t)
	cfg := tr.v.responderConfig(t)
	cfg.random, cfg.encaps = nil, nil // a new responder has randomness of its own
	if _, err := Accept(t.Context(), newScript(tr.toResponder), cfg); !errors.Is(err, errHandshake) {
		t.Errorf("responder: %v, want a failed handshake", err)
	}
	ic := tr.v.initiatorConfig(t)
	ic.random, ic.kem = nil, nil
	if _, err := Dial(t.Context(), newScript(tr.toInitiator), ic); !errors.Is(err, errHandshake) {
		t.Errorf("initiator: %v, want a failed handshake", err)
	}
}

func TestReflectedBytesAreRefused(t *testing.T) {
	tr := newTranscript(t)
	if _, err := tr.initiate(t, tr.toResponder); err == nil || err == io.EOF {
		t.Errorf("an initiator that hears itself: %v", err)
	}
	if _, err := tr.respond(t, tr.toInitiator); err == nil || err == io.EOF {
		t.Errorf("a responder that hears itself: %v", err)
	}
	// After a good handshake, the side's own records.
	got, err := tr.initiate(t, append(bytes.Clone(tr.toInitiator[:tr.m2End]), tr.toResponder[tr.m3End:]...))
	if wire.CodeOf(err) != wire.CodeProtocol || len(got) != 0 {
		t.Errorf("records to the responder were taken by the initiator: %v, %v", got, err)
	}
	got, err = tr.respond(t, append(bytes.Clone(tr.toResponder[:tr.m3End]), tr.toInitiator[tr.m2End:]...))
	if wire.CodeOf(err) != wire.CodeProtocol || len(got) != 0 {
		t.Errorf("records to the initiator were taken by the responder: %v, %v", got, err)
	}
}
