package noiseconn

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// The product on one side, the reference on the other, with fresh keys.

func randomX25519(t testing.TB) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	rand.Read(b)
	return b
}

// refInitiator is a reference initiator with fresh keys.
func refInitiator(t testing.TB, prologue []byte, peer [32]byte) *refHandshake {
	t.Helper()
	r := newRefHandshake(prologue, peer[:])
	r.static, r.ephemeral, r.peerStatic = randomX25519(t), randomX25519(t), peer[:]
	kem, err := mlkem.GenerateKey768()
	if err != nil {
		t.Fatal(err)
	}
	r.kem = kem
	return r
}

func refResponder(t testing.TB, prologue []byte, static *keys.PrivateKey) *refHandshake {
	t.Helper()
	public := static.Public().Raw()
	r := newRefHandshake(prologue, public[:])
	r.static, r.ephemeral, r.encapsRandom, r.epoch = static.ECDH(), randomX25519(t), randomBytes(32), make([]byte, 16)
	return r
}

// sendFrame writes a handshake message as it stands on the stream.
func sendFrame(t testing.TB, s io.Writer, first []byte, m []byte) {
	t.Helper()
	b := binary.BigEndian.AppendUint16(append([]byte(nil), first...), uint16(len(m)))
	if _, err := s.Write(append(b, m...)); err != nil {
		t.Error(err)
	}
}

func receiveFrame(t testing.TB, s io.Reader, first []byte) []byte {
	t.Helper()
	head := make([]byte, len(first)+2)
	if _, err := io.ReadFull(s, head); err != nil || !bytes.HasPrefix(head, first) {
		t.Errorf("head of a handshake message: %x, %v", head, err)
		return nil
	}
	m := make([]byte, binary.BigEndian.Uint16(head[len(first):]))
	if _, err := io.ReadFull(s, m); err != nil {
		t.Error(err)
	}
	return m
}

// run drives the reference initiator over s, up to the third message.
func (r *refHandshake) runInitiator(t testing.TB, s wire.Stream, hello []byte) error {
	sendFrame(t, s, []byte{1}, r.writeM1())
	m3, err := r.readM2(receiveFrame(t, s, []byte{1}), hello)
	if err == nil {
		sendFrame(t, s, nil, m3)
	}
	return err
}

func (r *refHandshake) runResponder(t testing.TB, s wire.Stream) (hello []byte, err error) {
	m2, err := r.readM1(receiveFrame(t, s, []byte{1}))
	if err != nil {
		return nil, err
	}
	sendFrame(t, s, []byte{1}, m2)
	return r.readM3(receiveFrame(t, s, nil))
}

func (r *refRecords) receive(t testing.TB, s io.Reader) (kind byte, body []byte) {
	t.Helper()
	head := make([]byte, 2)
	if _, err := io.ReadFull(s, head); err != nil {
		t.Error(err)
		return 0xff, nil
	}
	rec := append(head, make([]byte, binary.BigEndian.Uint16(head))...)
	if _, err := io.ReadFull(s, rec[2:]); err != nil {
		t.Error(err)
		return 0xff, nil
	}
	kind, body, err := r.open(rec)
	if err != nil {
		t.Error(err)
	}
	return kind, body
}

func ping(n uint64) []byte {
	b, err := wire.Encode(&wire.Ping{Clock: n})
	if err != nil {
		panic(err)
	}
	return b
}

const beyondRekey = 4096 + 3

// echo lets the reference answer every message with itself, and FIN with FIN.
func echo(t testing.TB, s wire.Stream, receive, send *refRecords) {
	for {
		kind, body := receive.receive(t, s)
		if _, err := s.Write(send.seal(kind, body)); err != nil {
			t.Error(err)
		}
		if kind != kindLast || t.Failed() {
			s.CloseWrite()
			return
		}
	}
}

// converse sends more messages than fit below a rekey and wants each of them back.
func converse(t *testing.T, c *Conn) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		for n := range uint64(beyondRekey) {
			if err := c.Send(&wire.Ping{Clock: n}); err != nil {
				sent <- err
				return
			}
		}
		sent <- c.CloseWrite()
	}()
	for n := range uint64(beyondRekey) {
		m, err := c.Recv()
		if err != nil || m.(*wire.Ping).Clock != n {
			t.Fatalf("message %d: %v, %v", n, m, err)
		}
	}
	if _, err := c.Recv(); err != io.EOF {
		t.Fatalf("after FIN: %v, want io.EOF", err)
	}
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestProductInitiatorSpeaksWithTheReference(t *testing.T) {
	executor := newKey(t, keys.Executor)
	a, b := wiretest.Pipe()
	r := refResponder(t, EndToEndPrologue(), executor)
	r.epoch = fixed("epoch", 16)
	done := make(chan error, 1)
	go func() {
		hello, err := r.runResponder(t, b)
		if err == nil && !bytes.Equal(hello, ping(77)) {
			err = errors.New("another hello")
		}
		done <- err
		if err == nil {
			toResponder, toInitiator := r.split()
			echo(t, b, &refRecords{key: toResponder}, &refRecords{key: toInitiator})
		}
		close(done)
	}()
	client := newKey(t, keys.Client)
	i, err := Dial(t.Context(), a, InitiatorConfig{Static: client, Peer: executor.Public().Raw(), Prologue: EndToEndPrologue()})
	if err != nil {
		t.Fatal(err)
	}
	if epoch := i.Epoch(); epoch != wire.ID(fixed("epoch", 16)) {
		t.Errorf("epoch %x", epoch)
	}
	c, err := i.Finish(&wire.Ping{Clock: 77})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(c.secrets.hash[:], r.h) || c.secrets.peer != executor.Public().Raw() || [32]byte(r.peerStatic) != client.Public().Raw() {
		t.Error("the two sides disagree on the transcript or on who is who")
	}
	converse(t, c)
	<-done
}

func TestProductResponderSpeaksWithTheReference(t *testing.T) {
	relay := newKey(t, keys.Relay)
	prologue := HopPrologue(fixed("binding", 32))
	a, b := wiretest.Pipe()
	r := refInitiator(t, prologue, relay.Public().Raw())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.runInitiator(t, a, ping(78)); err != nil {
			t.Error(err)
			return
		}
		toResponder, toInitiator := r.split()
		receive := &refRecords{key: toInitiator}
		if kind, body := receive.receive(t, a); kind != kindLast || !bytes.Equal(body, ping(79)) {
			t.Errorf("welcome of kind %d: %x", kind, body)
			return
		}
		echo(t, a, receive, &refRecords{key: toResponder})
	}()
	p, err := Accept(t.Context(), b, ResponderConfig{Static: relay, Prologue: prologue})
	if err != nil {
		t.Fatal(err)
	}
	if p.Peer() != [32]byte(r.static.PublicKey().Bytes()) || !bytes.Equal(p.Hello(), ping(78)) {
		t.Errorf("peer %x with hello %x", p.Peer(), p.Hello())
	}
	c, err := p.Accept(&wire.Ping{Clock: 79})
	if err != nil {
		t.Fatal(err)
	}
	converse(t, c)
	<-done
}

func TestProductChannelsSpeakWithTheReference(t *testing.T) {
	v := channelVectors()[0]
	t.Run("product opens", func(t *testing.T) {
		a, b := wiretest.Pipe()
		c, err := v.product(t).OpenChannel(a)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			head := make([]byte, 57)
			if _, err := io.ReadFull(b, head); err != nil || !bytes.Equal(head[:25], v.Header[:25]) {
				t.Errorf("header %x, %v", head, err)
				return
			}
			re := randomBytes(32)
			if _, err := b.Write(append([]byte{2}, re...)); err != nil {
				t.Error(err)
			}
			echo(t, b, &refRecords{key: refChannelKey(v.Secret, 0, 1, head[25:], nil)}, &refRecords{key: refChannelKey(v.Secret, 1, 1, head[25:], re)})
		}()
		converse(t, c)
		<-done
	})
	t.Run("product answers", func(t *testing.T) {
		s := v.product(t)
		a, b := wiretest.Pipe()
		send := &refRecords{key: v.KeyToAnswerer}
		if _, err := a.Write(append(append([]byte(nil), v.Header...), send.seal(kindLast, ping(1))...)); err != nil {
			t.Fatal(err)
		}
		in, err := AcceptAny(t.Context(), b, ResponderConfig{}, func(wire.ID) *Session { return s })
		if err != nil {
			t.Fatal(err)
		}
		if m, err := in.Conn.Recv(); err != nil || m.(*wire.Ping).Clock != 1 {
			t.Fatalf("first message: %v, %v", m, err)
		}
		answer := make([]byte, 33)
		if _, err := io.ReadFull(a, answer); err != nil || answer[0] != 2 {
			t.Fatalf("answer %x, %v", answer, err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			echo(t, a, &refRecords{key: refChannelKey(v.Secret, 1, 1, v.OpenerRandom, answer[1:])}, send)
		}()
		converse(t, in.Conn)
		<-done
	})
}
