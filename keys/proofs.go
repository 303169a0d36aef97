package keys

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
)

const (
	joinSecretDomain   = "postern join secret v1"
	announcementDomain = "postern announcement v1"
)

// HashJoinSecret returns SHA-256("postern join secret v1" | id | secret), by which a relay knows the secret when it is shown.
// The secret is random and 32 bytes long, so that a plain hash tells nothing of it.
func HashJoinSecret(id TokenID, secret [32]byte) [32]byte {
	message := append([]byte(joinSecretDomain), id[:]...)
	return sha256.Sum256(append(message, secret[:]...))
}

// AnnouncementMAC returns the proof that who published an executor's key and name held the token: HMAC-SHA256 under the
// token's pairing secret. The message is four fields, each after its length in 4 bytes, big end first: "postern announcement
// v1", the 16 bytes of the id, the key in its text form, and the name. [Pairing.Verify] checks it.
func AnnouncementMAC(pairing [32]byte, id TokenID, executor PublicKey, name string) [32]byte {
	var message []byte
	for _, field := range [][]byte{[]byte(announcementDomain), id[:], []byte(executor.String()), []byte(name)} {
		message = binary.BigEndian.AppendUint32(message, uint32(len(field)))
		message = append(message, field...)
	}
	mac := hmac.New(sha256.New, pairing[:])
	mac.Write(message)
	return [32]byte(mac.Sum(nil))
}
