package noiseconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// What stands on a stream around the handshake messages.

func refusalBytes(t testing.TB, e *wire.Error) []byte {
	t.Helper()
	var b bytes.Buffer
	b.WriteByte(0)
	if err := wire.WriteFrame(&b, wire.Refusal(e)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestForgedRefusalIsOnlyAnError(t *testing.T) {
	executor := newKey(t, keys.Executor)
	cfg := InitiatorConfig{Static: newKey(t, keys.Client), Peer: executor.Public().Raw(), Prologue: EndToEndPrologue()}
	s := newScript(refusalBytes(t, &wire.Error{Code: wire.CodeVersion, Text: "speak version 0", RetryAfter: time.Second}))
	_, err := Dial(t.Context(), s, cfg)
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.CodeVersion || e.Text != "speak version 0" {
		t.Fatalf("Dial = %v, want what the refusal says", err)
	}
	// Nothing was sent in answer, and the next attempt is as the first.
	if n := s.written.Len(); n != 1+2+m1Size {
		t.Errorf("%d bytes written, want the first message only", n)
	}
	again := newScript(nil)
	if _, err := Dial(t.Context(), again, cfg); err != io.ErrUnexpectedEOF {
		t.Errorf("Dial against silence = %v", err)
	}
	if b := again.written.Bytes(); b[0] != wire.Version || len(b) != 1+2+m1Size {
		t.Errorf("the next attempt begins with %d, want %d", b[0], wire.Version)
	}
}

func TestUnreadableRefusalIsAnError(t *testing.T) {
	notRefused := new(bytes.Buffer)
	notRefused.WriteByte(0)
	if err := wire.WriteFrame(notRefused, &wire.DialReply{}); err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{
		"nothing":         {0},
		"cut":             refusalBytes(t, &wire.Error{Code: wire.CodeBusy})[:4],
		"too long":        {0, 0xff, 0xff, 1},
		"not CBOR":        {0, 0, 1, 0xff},
		"another message": notRefused.Bytes(),
		"without a code":  {0, 0, 4, 0xa1, 1, 0x18, byte(wire.TypeRefused)},
	} {
		cfg := InitiatorConfig{Static: newKey(t, keys.Client), Peer: newKey(t, keys.Executor).Public().Raw()}
		if _, err := Dial(t.Context(), newScript(b), cfg); err == nil || err == io.EOF {
			t.Errorf("%s: Dial = %v, want an error that is not io.EOF", name, err)
		}
	}
}

func TestOtherVersionIsRefusedByNumber(t *testing.T) {
	for _, accept := range []struct {
		name string
		run  func(*script) error
	}{
		{"Accept", func(s *script) error {
			_, err := Accept(t.Context(), s, ResponderConfig{Static: newKey(t, keys.Relay)})
			return err
		}},
		{"AcceptAny", func(s *script) error {
			_, err := AcceptAny(t.Context(), s, ResponderConfig{Static: newKey(t, keys.Executor)}, func(wire.ID) *Session { return nil })
			return err
		}},
	} {
		for _, first := range []byte{0, 3, 0xff} {
			s := newScript(append([]byte{first}, make([]byte, 2000)...))
			if err := accept.run(s); wire.CodeOf(err) != wire.CodeVersion {
				t.Errorf("%s of first byte %d: %v, want code version", accept.name, first, err)
			}
			if s.written.Len() == 0 || s.written.Bytes()[0] != 0 {
				t.Errorf("%s of first byte %d answers %x, want a refusal", accept.name, first, s.written.Bytes())
			}
		}
	}
	cfg := InitiatorConfig{Static: newKey(t, keys.Client), Peer: newKey(t, keys.Executor).Public().Raw()}
	if _, err := Dial(t.Context(), newScript([]byte{2, 1, 2, 3}), cfg); wire.CodeOf(err) != wire.CodeVersion {
		t.Errorf("Dial answered with version 2: %v, want code version", err)
	}
}

// asking counts how much its reader asks for at once.
type asking struct {
	*script
	most int
}

func (a *asking) Read(p []byte) (int, error) {
	a.most = max(a.most, len(p))
	return a.script.Read(p)
}

func TestAnnouncedLengthsCostNothing(t *testing.T) {
	static := newKey(t, keys.Executor)
	accept := func(s wire.Stream) error {
		_, err := Accept(t.Context(), s, ResponderConfig{Static: static})
		return err
	}
	dial := func(s wire.Stream) error {
		_, err := Dial(t.Context(), s, InitiatorConfig{Static: newKey(t, keys.Client), Peer: static.Public().Raw()})
		return err
	}
	receive := func(s wire.Stream) error {
		_, err := newConn(s, nil, newRecordCipher([32]byte{}), newRecordCipher([32]byte{})).Recv()
		return err
	}
	for _, c := range []struct {
		name  string
		bytes []byte
		run   func(wire.Stream) error
	}{
		{"first message", []byte{1, 0xff, 0xff, 9}, accept},
		{"first message one byte long", binary.BigEndian.AppendUint16([]byte{1}, m1Size+1), accept},
		{"first message one byte short", binary.BigEndian.AppendUint16([]byte{1}, m1Size-1), accept},
		{"second message", []byte{1, 0xff, 0xff, 9}, dial},
		{"second message of the first's size", binary.BigEndian.AppendUint16([]byte{1}, m1Size), dial},
		{"refusal", []byte{0, 0xff, 0xff, 9}, dial},
		{"record without a body", []byte{0xff, 0xff}, receive},
		{"record below the least size", []byte{0, minRecord - 1, 9}, receive},
	} {
		s := &asking{script: newScript(c.bytes)}
		if err := c.run(s); err == nil || err == io.EOF {
			t.Errorf("%s: %v, want an error that is not io.EOF", c.name, err)
		}
		if s.most > 3 {
			t.Errorf("%s: asked for %d bytes on the word of a length", c.name, s.most)
		}
	}
}

func TestThirdMessageTooLongIsRefusedBeforeItIsRead(t *testing.T) {
	tr := newTranscript(t)
	for _, n := range []int{0, m3Overhead - 1, m3Max + 1, 0xffff} {
		head := binary.BigEndian.AppendUint16(bytes.Clone(tr.toResponder[:1+2+m1Size]), uint16(n))
		s := &asking{script: newScript(append(head, make([]byte, n)...))}
		cfg := tr.responder
		cfg.random = bytes.NewReader(tr.v.ResponderEphemeral)
		if _, err := Accept(t.Context(), s, cfg); !errors.Is(err, errHandshake) {
			t.Errorf("third message of %d bytes: %v, want a failed handshake", n, err)
		}
		if s.Len() != n {
			t.Errorf("third message of %d bytes: %d were read", n, n-s.Len())
		}
	}
}

func TestHelloAboveItsLimitIsNotSent(t *testing.T) {
	v := handshakeVectors(t)[0]
	ic, rc := v.initiatorConfig(t), v.responderConfig(t)
	sent, m1, err := startInitiator(ic.Static, ic.Peer, ic.Prologue, ic.random, ic.kem)
	if err != nil {
		t.Fatal(err)
	}
	_, m2, err := answerM1(m1, rc.Static, rc.Prologue, rc.Epoch, rc.random, rc.encaps)
	if err != nil {
		t.Fatal(err)
	}
	got, err := sent.readM2(m2)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := got.writeM3(make([]byte, wire.MaxHello+1)); err == nil {
		t.Error("a hello above the limit was sealed")
	}
}

func TestContextEndsAHandshakeAndSaysWhy(t *testing.T) {
	reason := errors.New("no longer wanted")
	static := newKey(t, keys.Executor)
	for name, run := range map[string]func(context.Context, wire.Stream) error{
		"Dial": func(ctx context.Context, s wire.Stream) error {
			_, err := Dial(ctx, s, InitiatorConfig{Static: static, Peer: static.Public().Raw()})
			return err
		},
		"Accept": func(ctx context.Context, s wire.Stream) error {
			_, err := Accept(ctx, s, ResponderConfig{Static: static})
			return err
		},
		"AcceptAny": func(ctx context.Context, s wire.Stream) error {
			_, err := AcceptAny(ctx, s, ResponderConfig{Static: static}, func(wire.ID) *Session { return nil })
			return err
		},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		a, _ := wiretest.Pipe()
		done := make(chan error, 1)
		go func() { done <- run(ctx, a) }()
		cancel(reason)
		if err := <-done; !errors.Is(err, reason) {
			t.Errorf("%s: %v, want the context's cause", name, err)
		}
	}
}

func TestRefusedPeerCanVerifyTheReason(t *testing.T) {
	executor := newKey(t, keys.Executor)
	a, b := wiretest.Pipe()
	done := make(chan error, 1)
	go func() {
		p, err := Accept(t.Context(), b, ResponderConfig{Static: executor, Prologue: EndToEndPrologue()})
		if err == nil {
			err = p.Refuse(&wire.Error{Code: wire.CodeUnauthorized, Text: "not listed"})
		}
		done <- err
	}()
	i, err := Dial(t.Context(), a, InitiatorConfig{Static: newKey(t, keys.Client), Peer: executor.Public().Raw(), Prologue: EndToEndPrologue()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := i.Finish(&wire.Ping{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := c.Recv()
	if refused, ok := m.(*wire.Refused); !ok || refused.Code != wire.CodeUnauthorized {
		t.Errorf("first record: %v, %v, want the refusal", m, err)
	}
	if _, err := c.Recv(); err != io.EOF {
		t.Errorf("after the refusal: %v, want io.EOF", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}
