package noiseconn

import (
	"bytes"
	"crypto/ecdh"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

var update = flag.Bool("update", false, "write the vectors anew, from the reference implementation")

// hexBytes is printed as text, so that a change of a vector can be read in a diff.
type hexBytes []byte

func (h hexBytes) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h)), nil }

func (h *hexBytes) UnmarshalText(text []byte) (err error) {
	*h, err = hex.DecodeString(string(text))
	return err
}

type handshakeVector struct {
	Name     string   `json:"name"`
	Prologue hexBytes `json:"prologue"`
	Epoch    hexBytes `json:"epoch"`
	Hello    hexBytes `json:"hello"`

	InitiatorStatic    hexBytes `json:"initiator_static"`
	InitiatorEphemeral hexBytes `json:"initiator_ephemeral"`
	ResponderStatic    hexBytes `json:"responder_static"`
	ResponderEphemeral hexBytes `json:"responder_ephemeral"`
	ResponderPublic    hexBytes `json:"responder_public"`
	KEMSeed            hexBytes `json:"kem_seed"`
	KEMRandom          hexBytes `json:"kem_random"`

	M1             hexBytes       `json:"m1"`
	PSK            hexBytes       `json:"psk"`
	M2             hexBytes       `json:"m2"`
	M3             hexBytes       `json:"m3"`
	Hash           hexBytes       `json:"handshake_hash"`
	KeyToResponder hexBytes       `json:"key_to_responder"`
	KeyToInitiator hexBytes       `json:"key_to_initiator"`
	ToResponder    []recordVector `json:"records_to_responder"`
	ToInitiator    []recordVector `json:"records_to_initiator"`
}

type recordVector struct {
	Number uint64   `json:"number"` // of the record in its direction, from 0
	Kind   byte     `json:"kind"`
	Body   hexBytes `json:"body"`
	Record hexBytes `json:"record"` // length included
}

// fixed is n bytes that differ from label to label.
func fixed(label string, n int) []byte {
	var out []byte
	for i := byte(0); len(out) < n; i++ {
		out = append(out, digest([]byte(label), []byte{i})...)
	}
	return out[:n]
}

func x25519(t testing.TB, raw []byte) *ecdh.PrivateKey {
	t.Helper()
	k, err := ecdh.X25519().NewPrivateKey(raw)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func kemKey(t testing.TB, seed []byte) *mlkem.DecapsulationKey768 {
	t.Helper()
	k, err := mlkem.NewDecapsulationKey768(seed)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func productKey(t testing.TB, kind keys.Kind, raw []byte) *keys.PrivateKey {
	t.Helper()
	k, err := keys.NewPrivateKey(kind, x25519(t, raw))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// vectorInputs are everything that the reference does not compute.
func vectorInputs(t testing.TB) []*handshakeVector {
	t.Helper()
	hello, err := wire.Encode(&wire.Hello{Versions: wire.Versions, Random: [32]byte(fixed("client random", 32)), Software: "postern 1.0"})
	if err != nil {
		t.Fatal(err)
	}
	hopHello, err := wire.Encode(&wire.HopHello{Role: wire.RoleExecutor, Versions: wire.Versions, Name: "builder-1", Instance: wire.ID(fixed("instance", 16))})
	if err != nil {
		t.Fatal(err)
	}
	const suite = "Noise_XKpsk3_25519_AESGCM_SHA256+MLKEM768"
	endToEnd := "\x00\x0bpostern/e2e\x00\x01\x01\x00\x29" + suite
	hop := "\x00\x0bpostern/hop\x00\x01\x01\x00\x29" + suite + "\x00\x20" + string(fixed("exporter", 32))
	vectors := []*handshakeVector{
		{Name: "end to end", Prologue: hexBytes(endToEnd), Epoch: fixed("epoch", 16), Hello: hello},
		{Name: "hop", Prologue: hexBytes(hop), Epoch: make([]byte, 16), Hello: hopHello},
		{Name: "empty hello", Prologue: hexBytes(endToEnd), Epoch: fixed("epoch", 16), Hello: hexBytes{}},
	}
	for _, v := range vectors {
		v.InitiatorStatic, v.InitiatorEphemeral = fixed(v.Name+" initiator", 32), fixed(v.Name+" initiator e", 32)
		v.ResponderStatic, v.ResponderEphemeral = fixed(v.Name+" responder", 32), fixed(v.Name+" responder e", 32)
		v.KEMSeed, v.KEMRandom = fixed(v.Name+" kem", 64), fixed(v.Name+" encapsulation", 32)
		v.ResponderPublic = x25519(t, v.ResponderStatic).PublicKey().Bytes()
	}
	return vectors
}

// sides are both ends of the reference, with the vector's keys.
func (v *handshakeVector) sides(t testing.TB) (initiator, responder *refHandshake) {
	t.Helper()
	initiator = newRefHandshake(v.Prologue, v.ResponderPublic)
	initiator.static, initiator.ephemeral = x25519(t, v.InitiatorStatic), x25519(t, v.InitiatorEphemeral)
	initiator.peerStatic, initiator.kem = v.ResponderPublic, kemKey(t, v.KEMSeed)
	responder = newRefHandshake(v.Prologue, v.ResponderPublic)
	responder.static, responder.ephemeral = x25519(t, v.ResponderStatic), x25519(t, v.ResponderEphemeral)
	responder.encapsRandom, responder.epoch = v.KEMRandom, v.Epoch
	return initiator, responder
}

// compute fills in the rest, with the reference on both sides.
func (v *handshakeVector) compute(t testing.TB) {
	t.Helper()
	i, r := v.sides(t)
	var err error
	v.M1 = i.writeM1()
	if v.M2, err = r.readM1(v.M1); err != nil {
		t.Fatal(err)
	}
	if v.M3, err = i.readM2(v.M2, v.Hello); err != nil {
		t.Fatal(err)
	}
	hello, err := r.readM3(v.M3)
	if err != nil || !bytes.Equal(hello, v.Hello) || !bytes.Equal(i.h, r.h) || !bytes.Equal(i.psk, r.psk) {
		t.Fatalf("the two sides of the reference disagree: %v", err)
	}
	v.PSK, v.Hash = i.psk, i.h
	v.KeyToResponder, v.KeyToInitiator = i.split()
	there, back := &refRecords{key: v.KeyToResponder}, &refRecords{key: v.KeyToInitiator}
	for n := range 3 {
		for _, d := range []struct {
			records *refRecords
			out     *[]recordVector
			label   string
		}{{there, &v.ToResponder, "there"}, {back, &v.ToInitiator, "back"}} {
			body := fixed(d.label, 20*(n+1))
			*d.out = append(*d.out, recordVector{uint64(n), kindLast, body, d.records.seal(kindLast, body)})
		}
	}
}

// golden checks that the committed file is what the reference computes, and returns what
// the file says. With -update it is written first.
func golden[T any](t testing.TB, name string, computed T) T {
	t.Helper()
	path := filepath.Join("testdata", name)
	want, err := json.MarshalIndent(computed, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(have)); d != "" {
		t.Fatalf("%s is not what the reference computes (-reference +file):\n%s", path, d)
	}
	var out T
	if err := json.Unmarshal(have, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func handshakeVectors(t testing.TB) []*handshakeVector {
	t.Helper()
	vectors := vectorInputs(t)
	for _, v := range vectors {
		v.compute(t)
	}
	return vectors
}

func (v *handshakeVector) initiatorConfig(t testing.TB) InitiatorConfig {
	return InitiatorConfig{
		Static: productKey(t, keys.Client, v.InitiatorStatic), Peer: [32]byte(v.ResponderPublic), Prologue: v.Prologue,
		random: bytes.NewReader(v.InitiatorEphemeral), kem: kemKey(t, v.KEMSeed),
	}
}

func (v *handshakeVector) responderConfig(t testing.TB) ResponderConfig {
	return ResponderConfig{
		Static: productKey(t, keys.Executor, v.ResponderStatic), Prologue: v.Prologue, Epoch: wire.ID(v.Epoch),
		random: bytes.NewReader(v.ResponderEphemeral), encaps: func(ek []byte) (shared, ct []byte, err error) {
			k, err := mlkem.NewEncapsulationKey768(ek)
			if err != nil {
				return nil, nil, err
			}
			return mlkemtest.Encapsulate768(k, v.KEMRandom)
		},
	}
}

func TestHandshakeBytesEqualTheVectors(t *testing.T) {
	for _, v := range golden(t, "handshake-v1.json", handshakeVectors(t)) {
		t.Run(v.Name, func(t *testing.T) {
			ic, rc := v.initiatorConfig(t), v.responderConfig(t)
			start, m1, err := startInitiator(ic.Static, ic.Peer, ic.Prologue, ic.random, ic.kem)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "m1", m1, v.M1)
			answered, m2, err := answerM1(m1, rc.Static, rc.Prologue, rc.Epoch, rc.random, rc.encaps)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "m2", m2, v.M2)
			got, err := start.readM2(m2)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "epoch", got.epoch[:], v.Epoch)
			m3, is, err := got.writeM3(v.Hello)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "m3", m3, v.M3)
			hello, rs, err := answered.readM3(m3)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "hello", hello, v.Hello)
			for name, pair := range map[string][2][]byte{
				"initiator's hash": {is.hash[:], v.Hash}, "responder's hash": {rs.hash[:], v.Hash},
				"initiator's send key": {is.send[:], v.KeyToResponder}, "responder's receive key": {rs.receive[:], v.KeyToResponder},
				"initiator's receive key": {is.receive[:], v.KeyToInitiator}, "responder's send key": {rs.send[:], v.KeyToInitiator},
				"responder's name": {is.peer[:], v.ResponderPublic},
				"initiator's name": {rs.peer[:], x25519(t, v.InitiatorStatic).PublicKey().Bytes()},
			} {
				wantBytes(t, name, pair[0], pair[1])
			}
			ek := ic.kem.EncapsulationKey().Bytes()
			shared, ct, err := rc.encaps(ek)
			if err != nil {
				t.Fatal(err)
			}
			psk, err := kemPSK(shared, ek, ct)
			if err != nil {
				t.Fatal(err)
			}
			wantBytes(t, "pre-shared key", psk, v.PSK)
			checkRecords(t, newRecordCipher(is.send), newRecordCipher(rs.receive), v.ToResponder)
			checkRecords(t, newRecordCipher(rs.send), newRecordCipher(is.receive), v.ToInitiator)
		})
	}
	if !bytes.Equal(EndToEndPrologue(), vectorInputs(t)[0].Prologue) || !bytes.Equal(HopPrologue(fixed("exporter", 32)), vectorInputs(t)[1].Prologue) {
		t.Error("prologues differ from the vectors'")
	}
}

func wantBytes(t testing.TB, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %x, want %x", what, got, want)
	}
}
