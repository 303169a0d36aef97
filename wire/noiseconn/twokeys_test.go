package noiseconn

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// answeredAs runs one handshake on a pipe, up to the third message.
func answeredAs(t *testing.T, pinned keys.PublicKey, cfg ResponderConfig) (*Conn, *Pending, error, error) {
	t.Helper()
	a, b := wiretest.Pipe()
	type accepted struct {
		p   *Pending
		err error
	}
	done := make(chan accepted, 1)
	go func() {
		in, err := AcceptAny(t.Context(), b, cfg, func(wire.ID) *Session { return nil })
		if err != nil {
			b.Reset(wire.CodeOf(err))
			done <- accepted{nil, err}
			return
		}
		done <- accepted{in.Pending, nil}
	}()
	i, dialErr := Dial(t.Context(), a, InitiatorConfig{Static: newKey(t, keys.Client), Peer: pinned.Raw(), Prologue: EndToEndPrologue()})
	var c *Conn
	if dialErr == nil {
		c, dialErr = i.Finish(&wire.Hello{Versions: wire.Versions, Random: [32]byte{1}})
	}
	got := <-done
	return c, got.p, dialErr, got.err
}

func TestInitiatorMayPinEitherKeyOfAResponder(t *testing.T) {
	first, next, third := newKey(t, keys.Executor), newKey(t, keys.Executor), newKey(t, keys.Executor)
	for _, c := range []struct {
		name   string
		pinned *keys.PrivateKey
		cfg    ResponderConfig
		ok     bool
	}{
		{"the only one", first, ResponderConfig{Static: first}, true},
		{"the first", first, ResponderConfig{Static: first, Next: next}, true},
		{"the next", next, ResponderConfig{Static: first, Next: next}, true},
		{"one key twice", first, ResponderConfig{Static: first, Next: first}, true},
		{"the next where there is none", next, ResponderConfig{Static: first}, false},
		{"a third", third, ResponderConfig{Static: first, Next: next}, false},
		{"the next without a first", next, ResponderConfig{Next: next}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.cfg.Prologue = EndToEndPrologue()
			conn, pending, dialErr, acceptErr := answeredAs(t, c.pinned.Public(), c.cfg)
			if !c.ok {
				if dialErr == nil || acceptErr == nil {
					t.Fatalf("initiator %v, responder %v: want an error of both", dialErr, acceptErr)
				}
				return
			}
			if dialErr != nil || acceptErr != nil {
				t.Fatal(errors.Join(dialErr, acceptErr))
			}
			if pending.Local() != c.pinned.Public() {
				t.Errorf("Local = %v, want the key that was pinned, %v", pending.Local(), c.pinned.Public())
			}
			if conn.secrets.hash != pending.sec.hash || conn.secrets.send != pending.sec.receive || conn.secrets.receive != pending.sec.send {
				t.Error("the two sides have different hashes or keys")
			}
			if conn.secrets.peer != c.pinned.Public().Raw() {
				t.Error("the initiator takes its peer for another one")
			}
		})
	}
}

// What a responder with two keys sends and derives is what one with the pinned key alone does, bit for bit.
func TestSecondKeyOfAResponderChangesNoByte(t *testing.T) {
	for _, v := range golden(t, "handshake-v1.json", handshakeVectors(t)) {
		for _, order := range []string{"alone", "first", "next"} {
			t.Run(v.Name+", "+order, func(t *testing.T) {
				cfg := v.responderConfig(t)
				pinned, other := cfg.Static, newKey(t, keys.Executor)
				switch order {
				case "first":
					cfg.Next = other
				case "next":
					cfg.Static, cfg.Next = other, pinned
				}
				frames := append(handshakeFrame([]byte{firstHandshake}, v.M1), handshakeFrame(nil, v.M3)...)
				s := newScript(frames)
				p, err := Accept(t.Context(), s, cfg)
				if err != nil {
					t.Fatal(err)
				}
				wantBytes(t, "what was sent", s.written.Bytes(), handshakeFrame([]byte{firstHandshake}, v.M2))
				wantBytes(t, "hash", p.sec.hash[:], v.Hash)
				wantBytes(t, "receive key", p.sec.receive[:], v.KeyToResponder)
				wantBytes(t, "send key", p.sec.send[:], v.KeyToInitiator)
				wantBytes(t, "hello", p.Hello(), v.Hello)
				if p.Local() != pinned.Public() {
					t.Errorf("Local = %v, want %v", p.Local(), pinned.Public())
				}
			})
		}
	}
}

func TestFirstMessageForNoKeyFailsAsWithOneKeyAndSendsNothing(t *testing.T) {
	_, m1, err := startInitiator(newKey(t, keys.Client), newKey(t, keys.Executor).Public().Raw(), EndToEndPrologue(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, next := range []*keys.PrivateKey{nil, newKey(t, keys.Executor)} {
		s := newScript(handshakeFrame([]byte{firstHandshake}, m1))
		drawn := &counter{}
		_, err := Accept(t.Context(), s, ResponderConfig{
			Static: newKey(t, keys.Executor), Next: next, Prologue: EndToEndPrologue(), random: drawn,
			encaps: func([]byte) ([]byte, []byte, error) {
				t.Error("a secret was encapsulated for nobody")
				return nil, nil, errHandshake
			},
		})
		if !errors.Is(err, errHandshake) || s.written.Len() != 0 || drawn.n != 0 {
			t.Fatalf("%v after %d bytes sent and %d bytes of randomness drawn, want a failed handshake after none", err, s.written.Len(), drawn.n)
		}
		texts = append(texts, err.Error())
	}
	if d := cmp.Diff(texts[0], texts[1]); d != "" {
		t.Errorf("another error with two keys:\n%s", d)
	}
}

// counter counts what is read from it.
type counter struct{ n int }

func (c *counter) Read(p []byte) (int, error) {
	c.n += len(p)
	return len(p), nil
}

func TestFirstMessageIsTriedOnceUnderEachKey(t *testing.T) {
	first, next := newKey(t, keys.Executor), newKey(t, keys.Executor)
	for _, c := range []struct {
		name string
		cfg  ResponderConfig
		want []*keys.PrivateKey
	}{
		{"one key", ResponderConfig{Static: first}, []*keys.PrivateKey{first}},
		{"two", ResponderConfig{Static: first, Next: next}, []*keys.PrivateKey{first, next}},
		{"no first", ResponderConfig{Next: next}, []*keys.PrivateKey{nil}},
	} {
		got := c.cfg.statics()
		if len(got) != len(c.want) {
			t.Fatalf("%s: %d tries, want %d", c.name, len(got), len(c.want))
		}
		for i := range got {
			if got[i] != c.want[i] {
				t.Errorf("%s: try %d is under another key", c.name, i)
			}
		}
	}
	// A message that opened under the first key and is wrong for another reason is not tried again.
	_, m1, err := startInitiator(newKey(t, keys.Client), first.Public().Raw(), EndToEndPrologue(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	encapsulated := 0
	_, _, _, err = answerEither(m1, ResponderConfig{
		Static: first, Next: next, Prologue: EndToEndPrologue(),
		encaps: func([]byte) ([]byte, []byte, error) { encapsulated++; return nil, nil, io.ErrUnexpectedEOF },
	})
	if !errors.Is(err, errHandshake) || errors.Is(err, errOtherKey) || encapsulated != 1 {
		t.Errorf("%v after %d encapsulations, want a failed handshake after one", err, encapsulated)
	}
}

// Every change to a recorded conversation ends in an error also where there is a second key.
func FuzzResponderWithTwoKeys(f *testing.F) {
	tr := newTranscript(f)
	tr.responder.Next, tr.responder.Static = tr.responder.Static, newKey(f, keys.Executor)
	f.Add(uint16(0), byte(0))
	f.Add(uint16(3), byte(1))
	f.Add(uint16(40), byte(0x80))
	f.Add(uint16(1300), byte(4))
	f.Fuzz(func(t *testing.T, at uint16, change byte) {
		b := bytes.Clone(tr.toResponder)
		i := int(at) % tr.m3End
		b[i] ^= change
		got, err := tr.respond(t, b)
		if change == 0 {
			if err != io.EOF || len(got) != len(says) {
				t.Fatalf("unchanged: %d messages, %v", len(got), err)
			}
			return
		}
		if err == nil || err == io.EOF || len(got) != 0 {
			t.Fatalf("byte %d changed by %#x: %d messages, %v", i, change, len(got), err)
		}
	})
}
