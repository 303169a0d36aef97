package noiseconn

import (
	"crypto/ecdh"
	"crypto/subtle"
	"errors"
	"io"

	"github.com/flynn/noise"
)

// keptDH is X25519 for one handshake. It keeps the parsed private keys, two at most:
// parsing one costs a scalar multiplication, which doubles the price of each agreement.
type keptDH struct {
	keys []*ecdh.PrivateKey
}

var _ noise.DHFunc = (*keptDH)(nil)

func (*keptDH) DHLen() int     { return 32 }
func (*keptDH) DHName() string { return "25519" }

// add makes a key known, in the library's form.
func (d *keptDH) add(k *ecdh.PrivateKey) noise.DHKey {
	d.keys = append(d.keys, k)
	return noise.DHKey{Private: k.Bytes(), Public: k.PublicKey().Bytes()}
}

// GenerateKeypair makes the ephemeral key.
func (d *keptDH) GenerateKeypair(random io.Reader) (noise.DHKey, error) {
	var seed [32]byte
	if _, err := io.ReadFull(random, seed[:]); err != nil {
		return noise.DHKey{}, err
	}
	k, err := ecdh.X25519().NewPrivateKey(seed[:])
	if err != nil {
		return noise.DHKey{}, err
	}
	return d.add(k), nil
}

// DH fails on low-order points (RFC 7748 section 6.1).
func (d *keptDH) DH(private, public []byte) ([]byte, error) {
	pub, err := ecdh.X25519().NewPublicKey(public)
	if err != nil {
		return nil, err
	}
	for _, k := range d.keys {
		if subtle.ConstantTimeCompare(k.Bytes(), private) == 1 {
			return k.ECDH(pub)
		}
	}
	return nil, errors.New("private key is not one of this handshake's")
}
