package noiseconn

// A second implementation of everything in this package that touches bytes, for the tests
// to compare with: written from the Noise specification (revision 34) and PROTOCOL.md on
// the standard library alone. It shares no code with the product and takes no shortcuts.

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hmac"
	"crypto/mlkem"
	"crypto/mlkem/mlkemtest"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math"
)

func mac(key []byte, parts ...[]byte) []byte {
	h := hmac.New(sha256.New, key)
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

func digest(parts ...[]byte) []byte {
	h := sha256.New()
	for _, p := range parts {
		h.Write(p)
	}
	return h.Sum(nil)
}

// noiseHKDF is section 4.3: n outputs of 32 bytes.
func noiseHKDF(ck, ikm []byte, n int) [][]byte {
	temp := mac(ck, ikm)
	var out [][]byte
	var last []byte
	for i := byte(1); int(i) <= n; i++ {
		last = mac(temp, last, []byte{i})
		out = append(out, last)
	}
	return out
}

// aesgcm is section 12.4: 32 zero bits and the counter, big-endian.
func aesgcm(key []byte) cipher.AEAD {
	block, err := aes.NewCipher(key)
	if err != nil {
		panic(err)
	}
	a, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return a
}

func nonceOf(n uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4), n) }

// refHandshake is one side of Noise_XKpsk3_25519_AESGCM_SHA256 with the KEM in its payloads.
type refHandshake struct {
	h, ck, k []byte
	n        uint64

	static, ephemeral *ecdh.PrivateKey
	peerStatic        []byte
	peerEphemeral     []byte
	kem               *mlkem.DecapsulationKey768 // initiator
	encapsRandom      []byte                     // responder
	epoch             []byte                     // responder: to send; initiator: as received
	psk               []byte
	emptyPSK          bool // mix the empty pre-shared key: a hostile peer

	before *refHandshake // initiator: the state before the third message, to write another one from
}

func newRefHandshake(prologue, responder []byte) *refHandshake {
	name := []byte("Noise_XKpsk3_25519_AESGCM_SHA256") // 32 bytes: no hash, no padding
	r := &refHandshake{h: name, ck: name}
	r.mixHash(prologue)
	r.mixHash(responder)
	return r
}

func (r *refHandshake) mixHash(b []byte) { r.h = digest(r.h, b) }

func (r *refHandshake) mixKey(ikm []byte) {
	out := noiseHKDF(r.ck, ikm, 2)
	r.ck, r.k, r.n = out[0], out[1], 0
}

func (r *refHandshake) mixPSK() {
	psk := r.psk
	if r.emptyPSK {
		psk = nil
	}
	out := noiseHKDF(r.ck, psk, 3)
	r.ck = out[0]
	r.mixHash(out[1])
	r.k, r.n = out[2], 0
}

func (r *refHandshake) encrypt(plain []byte) []byte {
	c := aesgcm(r.k).Seal(nil, nonceOf(r.n), plain, r.h)
	r.n++
	r.mixHash(c)
	return c
}

func (r *refHandshake) decrypt(c []byte) ([]byte, error) {
	p, err := aesgcm(r.k).Open(nil, nonceOf(r.n), c, r.h)
	if err != nil {
		return nil, err
	}
	r.n++
	r.mixHash(c)
	return p, nil
}

func agree(k *ecdh.PrivateKey, public []byte) []byte {
	p, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		panic(err)
	}
	s, err := k.ECDH(p)
	if err != nil {
		panic(err)
	}
	return s
}

// sendEphemeral is the token e of a pattern with a pre-shared key (section 9.2).
func (r *refHandshake) sendEphemeral() []byte {
	e := r.ephemeral.PublicKey().Bytes()
	r.mixHash(e)
	r.mixKey(e)
	return e
}

func (r *refHandshake) receiveEphemeral(e []byte) {
	r.peerEphemeral = e
	r.mixHash(e)
	r.mixKey(e)
}

func (r *refHandshake) deriveKEM(shared, ek, ct []byte) {
	r.psk = mac(mac(digest(ek, ct), shared), []byte("postern mlkem768 psk v1"), []byte{1})
}

func (r *refHandshake) writeM1() []byte {
	m := r.sendEphemeral()
	r.mixKey(agree(r.ephemeral, r.peerStatic)) // es
	return append(m, r.encrypt(r.kem.EncapsulationKey().Bytes())...)
}

// readM1 also makes m2.
func (r *refHandshake) readM1(m1 []byte) (m2 []byte, err error) {
	r.receiveEphemeral(m1[:32])
	r.mixKey(agree(r.static, r.peerEphemeral)) // es
	ekBytes, err := r.decrypt(m1[32:])
	if err != nil {
		return nil, err
	}
	ek, err := mlkem.NewEncapsulationKey768(ekBytes)
	if err != nil {
		return nil, err
	}
	shared, ct, err := mlkemtest.Encapsulate768(ek, r.encapsRandom)
	if err != nil {
		return nil, err
	}
	r.deriveKEM(shared, ekBytes, ct)
	m2 = r.sendEphemeral()
	r.mixKey(agree(r.ephemeral, r.peerEphemeral)) // ee
	return append(m2, r.encrypt(append(ct, r.epoch...))...), nil
}

// readM2 also makes m3.
func (r *refHandshake) readM2(m2, hello []byte) (m3 []byte, err error) {
	r.receiveEphemeral(m2[:32])
	r.mixKey(agree(r.ephemeral, r.peerEphemeral)) // ee
	payload, err := r.decrypt(m2[32:])
	if err != nil {
		return nil, err
	}
	ct := payload[:1088]
	r.epoch = payload[1088:]
	shared, err := r.kem.Decapsulate(ct)
	if err != nil {
		return nil, err
	}
	r.deriveKEM(shared, r.kem.EncapsulationKey().Bytes(), ct)
	before := *r
	r.before = &before
	m3 = r.encrypt(r.static.PublicKey().Bytes())
	r.mixKey(agree(r.static, r.peerEphemeral)) // se
	r.mixPSK()
	return append(m3, r.encrypt(hello)...), nil
}

func (r *refHandshake) readM3(m3 []byte) (hello []byte, err error) {
	if r.peerStatic, err = r.decrypt(m3[:48]); err != nil {
		return nil, err
	}
	r.mixKey(agree(r.ephemeral, r.peerStatic)) // se
	r.mixPSK()
	return r.decrypt(m3[48:])
}

// split is section 5.2.
func (r *refHandshake) split() (toResponder, toInitiator []byte) {
	out := noiseHKDF(r.ck, nil, 2)
	return out[0], out[1]
}

// refRecords is one direction.
type refRecords struct {
	key   []byte
	count uint64
}

func (r *refRecords) ratchet() {
	if r.count > 0 && r.count%4096 == 0 {
		r.key = aesgcm(r.key).Seal(nil, nonceOf(math.MaxUint64), make([]byte, 32), nil)[:32]
	}
}

// seal makes a record that says kind and body, padded as the specification wants.
func (r *refRecords) seal(kind byte, body []byte) []byte {
	plain := append([]byte{kind, byte(len(body) >> 8), byte(len(body))}, body...)
	if len(body) <= 4096 {
		plain = append(plain, make([]byte, (256-len(plain)%256)%256)...)
	}
	return r.sealRaw(plain)
}

// sealRaw seals any plaintext.
func (r *refRecords) sealRaw(plain []byte) []byte {
	r.ratchet()
	c := aesgcm(r.key).Seal(nil, nonceOf(r.count), plain, nil)
	r.count++
	return append([]byte{byte(len(c) >> 8), byte(len(c))}, c...)
}

// open reads a whole record, length included, and returns what it says.
func (r *refRecords) open(record []byte) (kind byte, body []byte, err error) {
	if len(record) < 2 || int(binary.BigEndian.Uint16(record)) != len(record)-2 {
		return 0, nil, errors.New("length of the record")
	}
	r.ratchet()
	p, err := aesgcm(r.key).Open(nil, nonceOf(r.count), record[2:], nil)
	if err != nil {
		return 0, nil, err
	}
	r.count++
	n := int(binary.BigEndian.Uint16(p[1:]))
	return p[0], p[3 : 3+n], nil
}

// refChannelSecret is HKDF-SHA256 of RFC 5869, one block.
func refChannelSecret(hash, clientRandom, executorRandom []byte) []byte {
	prk := mac(hash, clientRandom, executorRandom)
	return mac(prk, []byte("postern channels v1"), []byte{1})
}

// refChannelKey is HKDF-Expand, one block; answererRandom is empty for the opener's direction.
func refChannelKey(secret []byte, direction byte, n uint64, openerRandom, answererRandom []byte) []byte {
	return mac(secret, []byte("postern channel v1"), []byte{direction},
		binary.BigEndian.AppendUint64(nil, n), openerRandom, answererRandom, []byte{1})
}
