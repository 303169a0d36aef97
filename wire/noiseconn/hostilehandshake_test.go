package noiseconn

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/wiretest"
)

// Peers that follow the handshake up to a point, and then do not.

// answerTo runs the product's responder against a reference initiator, whose third message
// is altered by spoil.
func answerTo(t *testing.T, r *refHandshake, static *keys.PrivateKey, spoil func(m3 []byte) []byte) error {
	t.Helper()
	state, m2, err := answerM1(r.writeM1(), static, EndToEndPrologue(), wire.ID{}, nil, encapsulate)
	if err != nil {
		return err
	}
	m3, err := r.readM2(m2, ping(1))
	if err != nil {
		t.Fatal(err)
	}
	if spoil != nil {
		m3 = spoil(m3)
	}
	_, _, err = state.readM3(m3)
	return err
}

func TestInitiatorThatLeavesThePresharedKeyOutIsRefused(t *testing.T) {
	executor := newKey(t, keys.Executor)
	r := refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
	if err := answerTo(t, r, executor, nil); err != nil {
		t.Fatalf("an honest peer: %v", err)
	}
	r = refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
	r.emptyPSK = true
	if err := answerTo(t, r, executor, nil); !errors.Is(err, errHandshake) {
		t.Fatalf("a peer without the pre-shared key: %v, want a failed handshake", err)
	}
}

func TestResponderThatLeavesThePresharedKeyOutSaysNothingThatOpens(t *testing.T) {
	for _, empty := range []bool{false, true} {
		executor := newKey(t, keys.Executor)
		r := refResponder(t, EndToEndPrologue(), executor)
		r.emptyPSK = empty
		a, b := wiretest.Pipe()
		done := make(chan error, 1)
		go func() {
			_, err := r.runResponder(t, b)
			_, toInitiator := r.split() // a hostile peer goes on whatever it read
			b.Write((&refRecords{key: toInitiator}).seal(kindLast, ping(1)))
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
		_, err = c.Recv()
		if empty && wire.CodeOf(err) != wire.CodeProtocol || !empty && err != nil {
			t.Errorf("empty %t: Recv = %v", empty, err)
		}
		if err := <-done; empty != (err != nil) {
			t.Errorf("empty %t: the hostile side reads m3 with %v", empty, err)
		}
	}
}

func TestThirdMessageDependsOnTheKEMSecret(t *testing.T) {
	v := handshakeVectors(t)[0]
	for _, change := range []byte{0, 1} {
		ic, rc := v.initiatorConfig(t), v.responderConfig(t)
		honest := rc.encaps
		rc.encaps = func(ek []byte) (shared, ct []byte, err error) {
			shared, ct, err = honest(ek)
			shared = bytes.Clone(shared)
			shared[0] ^= change // everything else, X25519 included, stays what it was
			return shared, ct, err
		}
		sent, m1, err := startInitiator(ic.Static, ic.Peer, ic.Prologue, ic.random, ic.kem)
		if err != nil {
			t.Fatal(err)
		}
		answered, m2, err := answerM1(m1, rc.Static, rc.Prologue, rc.Epoch, rc.random, rc.encaps)
		if err != nil {
			t.Fatal(err)
		}
		wantBytes(t, "m2", m2, v.M2)
		got, err := sent.readM2(m2)
		if err != nil {
			t.Fatal(err)
		}
		m3, _, err := got.writeM3(v.Hello)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err = answered.readM3(m3); (err == nil) != (change == 0) {
			t.Errorf("with the KEM secret changed by %d: %v", change, err)
		}
	}
}

func TestSessionKeysDependOnTheKEMSecret(t *testing.T) {
	v := *handshakeVectors(t)[0]
	first := v.KeyToResponder
	i, r := v.sides(t)
	m2, err := r.readM1(i.writeM1())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.readM2(m2, v.Hello); err != nil {
		t.Fatal(err)
	}
	same, _ := i.split()
	wantBytes(t, "key with the same secret", same, first)

	// Whoever has broken X25519 knows everything here but the pre-shared key.
	i, r = v.sides(t)
	if m2, err = r.readM1(i.writeM1()); err != nil {
		t.Fatal(err)
	}
	i.emptyPSK = true
	if _, err := i.readM2(m2, v.Hello); err != nil {
		t.Fatal(err)
	}
	if other, _ := i.split(); bytes.Equal(other, first) {
		t.Error("the record keys do not depend on the KEM secret")
	}
}

func TestExecutorKeyAloneCannotForgeAClient(t *testing.T) {
	// The thief of the executor's key knows it, and the client's public key.
	executor, client := newKey(t, keys.Executor), newKey(t, keys.Client)
	victim := client.Public().Raw()
	const itself = "the client itself" // shows that nothing else is wrong with the forgeries
	for name, se := range map[string]func(r *refHandshake) []byte{
		itself:                                func(r *refHandshake) []byte { return agree(client.ECDH(), r.peerEphemeral) },
		"stolen key in place of the client's": func(r *refHandshake) []byte { return agree(executor.ECDH(), r.peerEphemeral) },
		"static keys of both":                 func(*refHandshake) []byte { return agree(executor.ECDH(), victim[:]) },
		"ephemeral in place of the client's":  func(r *refHandshake) []byte { return agree(r.ephemeral, r.peerEphemeral) },
	} {
		r := refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
		err := answerTo(t, r, executor, func([]byte) []byte {
			forger := r.rewound(t)
			m3 := forger.encrypt(victim[:])
			forger.mixKey(se(r))
			forger.mixPSK()
			return append(m3, forger.encrypt(ping(1))...)
		})
		if name == itself && err != nil || name != itself && !errors.Is(err, errHandshake) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// lowOrder are the points of Curve25519 on which every agreement gives zero (RFC 7748
// section 6.1), and some of their other encodings.
var lowOrder = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800",
	"5f9c95bca3508c24b1d0b1559c83ef5b04445cc4581c8e86d8224eddd09f1157",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
}

func TestLowOrderPointsAreRefusedEverywhere(t *testing.T) {
	executor := newKey(t, keys.Executor)
	for _, text := range lowOrder {
		point, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		zero := make([]byte, 32)

		r := refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
		r.mixHash(point)
		r.mixKey(point)
		r.mixKey(zero)
		m1 := append(bytes.Clone(point), r.encrypt(r.kem.EncapsulationKey().Bytes())...)
		if _, _, err := answerM1(m1, executor, EndToEndPrologue(), wire.ID{}, nil, encapsulate); !errors.Is(err, errHandshake) {
			t.Errorf("ephemeral of the initiator %s: %v", text, err)
		}

		sent, m1, err := startInitiator(newKey(t, keys.Client), executor.Public().Raw(), EndToEndPrologue(), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		r = refResponder(t, EndToEndPrologue(), executor)
		r.receiveEphemeral(m1[:32])
		r.mixKey(agree(r.static, r.peerEphemeral))
		if _, err := r.decrypt(m1[32:]); err != nil {
			t.Fatal(err)
		}
		r.mixHash(point)
		r.mixKey(point)
		r.mixKey(zero)
		m2 := append(bytes.Clone(point), r.encrypt(make([]byte, 1088+16))...)
		if _, err := sent.readM2(m2); !errors.Is(err, errHandshake) {
			t.Errorf("ephemeral of the responder %s: %v", text, err)
		}

		r = refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
		if err := answerTo(t, r, executor, func([]byte) []byte {
			forger := r.rewound(t)
			m3 := forger.encrypt(point)
			forger.mixKey(zero)
			forger.mixPSK()
			return append(m3, forger.encrypt(ping(1))...)
		}); !errors.Is(err, errHandshake) {
			t.Errorf("static key of the initiator %s: %v", text, err)
		}
	}
}

// rewound is r as it was before it wrote its third message.
func (r *refHandshake) rewound(t *testing.T) *refHandshake {
	t.Helper()
	if r.before == nil {
		t.Fatal("no third message was written")
	}
	c := *r.before
	c.psk = r.psk
	return &c
}

func TestBadEncapsulationKeyIsRefused(t *testing.T) {
	executor := newKey(t, keys.Executor)
	for name, ek := range map[string][]byte{
		"coefficients above the modulus": bytes.Repeat([]byte{0xff}, 1184),
		"one byte short":                 make([]byte, 1183),
		"empty":                          nil,
	} {
		r := refInitiator(t, EndToEndPrologue(), executor.Public().Raw())
		m1 := r.sendEphemeral()
		r.mixKey(agree(r.ephemeral, r.peerStatic))
		m1 = append(m1, r.encrypt(ek)...)
		if _, _, err := answerM1(m1, executor, EndToEndPrologue(), wire.ID{}, nil, encapsulate); !errors.Is(err, errHandshake) {
			t.Errorf("%s: %v, want a failed handshake", name, err)
		}
	}
}

func TestOtherPrologueOrKeyIsRefused(t *testing.T) {
	executor, other := newKey(t, keys.Executor), newKey(t, keys.Executor)
	for _, c := range []struct {
		name     string
		peer     *keys.PrivateKey
		prologue []byte
		ok       bool
	}{
		{"same", executor, HopPrologue([]byte("one")), true},
		{"another channel binding", executor, HopPrologue([]byte("two")), false},
		{"no channel binding", executor, HopPrologue(nil), false},
		{"end to end", executor, EndToEndPrologue(), false},
		{"another executor's key", other, HopPrologue([]byte("one")), false},
	} {
		_, m1, err := startInitiator(newKey(t, keys.Client), c.peer.Public().Raw(), c.prologue, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = answerM1(m1, executor, HopPrologue([]byte("one")), wire.ID{}, nil, encapsulate)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, errHandshake) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAnswerOfAnotherExecutorIsRefused(t *testing.T) {
	// A relay that brings the client to an executor of its own choice, which answers in
	// spite of a first message that it cannot read.
	pinned, other := newKey(t, keys.Executor), newKey(t, keys.Executor)
	sent, m1, err := startInitiator(newKey(t, keys.Client), pinned.Public().Raw(), EndToEndPrologue(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := refResponder(t, EndToEndPrologue(), other)
	r.receiveEphemeral(m1[:32])
	r.mixKey(agree(r.static, r.peerEphemeral))
	r.mixHash(m1[32:])
	m2 := r.sendEphemeral()
	r.mixKey(agree(r.ephemeral, r.peerEphemeral))
	m2 = append(m2, r.encrypt(make([]byte, 1088+16))...)
	if _, err := sent.readM2(m2); !errors.Is(err, errHandshake) {
		t.Errorf("%v, want a failed handshake", err)
	}
}

func TestHandshakeNeedsKeys(t *testing.T) {
	if _, _, err := startInitiator(nil, [32]byte{1}, nil, nil, nil); err == nil {
		t.Error("an initiator without a key")
	}
	if _, _, err := startInitiator(newKey(t, keys.Client), [32]byte{}, nil, nil, nil); err == nil {
		t.Error("an initiator without the peer's key")
	}
	if _, _, err := answerM1(make([]byte, m1Size), nil, nil, wire.ID{}, nil, encapsulate); err == nil {
		t.Error("a responder without a key")
	}
	dh := &keptDH{}
	if _, err := dh.DH(fixed("unknown", 32), x25519(t, fixed("peer", 32)).PublicKey().Bytes()); err == nil {
		t.Error("an agreement with a key of nobody's")
	}
}
