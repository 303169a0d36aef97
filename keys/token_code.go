package keys

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"time"

	"github.com/fxamacker/cbor/v2"
)

const (
	// tokenDomain separates the checksum of a token from every other use of SHA-256, and says which fields a token has.
	tokenDomain  = "postern join token v1"
	tokenSumSize = 4 // catches slips of hand and eye, as sumSize does
)

// tokenFields is what a token holds, as a CBOR map. A later version gets another tokenDomain, so that fields need no rule of
// what to do with an unknown one: it is refused.
type tokenFields struct {
	Address  string         `cbor:"1,keyasint"` // HOST:PORT
	RelayKey []byte         `cbor:"2,keyasint"`
	ID       []byte         `cbor:"3,keyasint"`
	Secret   []byte         `cbor:"4,keyasint"`
	Pairing  []byte         `cbor:"5,keyasint"`
	Clients  []clientFields `cbor:"6,keyasint"`
	Pattern  string         `cbor:"7,keyasint"`
	Expires  int64          `cbor:"8,keyasint"` // Unix seconds
}

// clientFields is a client, as a CBOR array.
type clientFields struct {
	_    struct{} `cbor:",toarray"`
	Key  []byte
	Name string
}

var tokenEncoding = func() cbor.EncMode {
	options := cbor.CoreDetEncOptions()
	options.TagsMd = cbor.TagsForbidden
	mode, err := options.EncMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}()

var tokenDecoding = func() cbor.DecMode {
	mode, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, ExtraReturnErrors: cbor.ExtraDecErrorUnknownField,
		IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden, UTF8: cbor.UTF8RejectInvalid,
		MaxNestedLevels: 4, MaxArrayElements: maxTokenClient, MaxMapPairs: 16,
	}.DecMode()
	if err != nil {
		panic(err) // the options are constants
	}
	return mode
}()

// encodeToken returns the part after the underscore for a token that was checked.
func encodeToken(t *JoinToken) (string, error) {
	relayKey := t.Relay.Key.Raw()
	token := tokenFields{
		Address: t.Relay.Address(), RelayKey: relayKey[:],
		ID: t.ID[:], Secret: t.Secret[:], Pairing: t.Pairing[:],
		Pattern: t.Pattern, Expires: t.Expires.Unix(),
	}
	for _, client := range t.Clients {
		key := client.Key.Raw()
		token.Clients = append(token.Clients, clientFields{Key: key[:], Name: client.Name})
	}
	encoded, err := tokenEncoding.Marshal(token)
	if err != nil {
		return "", fmt.Errorf("encode join token: %w", err)
	}
	sum := tokenSum(encoded)
	return alphabet.EncodeToString(append(encoded, sum[:]...)), nil
}

// tokenSum is the checksum of an encoded token.
func tokenSum(encoded []byte) [tokenSumSize]byte {
	digest := sha256.Sum256(append([]byte(tokenDomain), encoded...))
	return [tokenSumSize]byte(digest[:])
}

// decodeToken is the inverse of encodeToken, of a body whose length was checked. Its errors repeat nothing of the body.
func decodeToken(body string) (*JoinToken, error) {
	data, err := alphabet.DecodeString(body)
	if err != nil {
		return nil, errors.New("has a character other than a-z and 2-7: copy the whole token, and nothing else")
	}
	if len(data) <= tokenSumSize {
		return nil, errors.New("is cut short: copy the whole token")
	}
	encoded := data[:len(data)-tokenSumSize]
	if sum := tokenSum(encoded); !bytes.Equal(sum[:], data[len(encoded):]) {
		return nil, errors.New("has a wrong checksum: copy the whole token")
	}
	var token tokenFields
	if err := tokenDecoding.Unmarshal(encoded, &token); err != nil {
		// The decoder's own words may quote the content.
		return nil, errors.New("holds fields that are not a join token's: it was made by another version, or by another program")
	}
	parsed, err := token.token()
	if err != nil {
		return nil, err
	}
	// What the decoders are lenient with is refused here: unused bits, a number in more bytes, an array in place of bytes.
	if again, err := encodeToken(parsed); err != nil || again != body {
		return nil, errors.New("is not in its only spelling: it was made by another program")
	}
	return parsed, nil
}

// token checks lengths and values.
func (f *tokenFields) token() (*JoinToken, error) {
	token := &JoinToken{Pattern: f.Pattern, Expires: time.Unix(f.Expires, 0).UTC()}
	relayKey, err := keyOf(Relay, f.RelayKey)
	if err != nil {
		return nil, err
	}
	if len(f.Address) > maxRelayURL {
		return nil, errors.New("has an over-long relay address")
	}
	if token.Relay, err = ParseRelayURL(relayScheme + f.Address + "#" + relayKey.String()); err != nil {
		return nil, err
	}
	for dst, src := range map[*[32]byte][]byte{&token.Secret: f.Secret, &token.Pairing: f.Pairing} {
		if len(src) != len(dst) {
			return nil, errors.New("has a secret of a wrong length")
		}
		copy(dst[:], src)
	}
	if len(f.ID) != len(token.ID) {
		return nil, errors.New("has an id of a wrong length")
	}
	copy(token.ID[:], f.ID)
	for _, client := range f.Clients {
		key, err := keyOf(Client, client.Key)
		if err != nil {
			return nil, err
		}
		token.Clients = append(token.Clients, TokenClient{Key: key, Name: client.Name})
	}
	return token, token.check()
}

// keyOf makes a key of bytes that came from elsewhere.
func keyOf(kind Kind, raw []byte) (PublicKey, error) {
	if len(raw) != keySize {
		return PublicKey{}, fmt.Errorf("has %s key of a wrong length", kind.noun())
	}
	return NewPublicKey(kind, [keySize]byte(raw))
}
