package noiseconn

import (
	"crypto/hkdf"
	"crypto/mlkem"
	"crypto/sha256"
)

const pskInfo = "postern mlkem768 psk v1"

// kemPSK turns the KEM's shared secret into Noise's pre-shared key. The salt binds the secret to
// both public values, whatever the KEM itself binds.
func kemPSK(shared, encapsulationKey, ciphertext []byte) ([]byte, error) {
	h := sha256.New()
	h.Write(encapsulationKey)
	h.Write(ciphertext)
	return hkdf.Key(sha256.New, shared, h.Sum(nil), pskInfo, 32)
}

// encapsulate is mlkem's, in a shape that tests can replace by a deterministic one.
func encapsulate(encapsulationKey []byte) (shared, ciphertext []byte, err error) {
	ek, err := mlkem.NewEncapsulationKey768(encapsulationKey)
	if err != nil {
		return nil, nil, err
	}
	shared, ciphertext = ek.Encapsulate()
	return shared, ciphertext, nil
}
