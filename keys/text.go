package keys

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
)

const (
	keySize  = 32 // an X25519 key, public or private
	sumSize  = 2  // the checksum catches slips of hand and eye; it is no defence against forgery, and the full key needs none
	bodySize = 55 // base32 characters of key and checksum

	// sumDomain separates the checksum from every other use of SHA-256.
	sumDomain = "postern key v1"

	// secretSuffix after a kind marks a private key, so that scanners can look for "relaysecret_" and the like.
	secretSuffix = "secret"
)

// alphabet is RFC 4648 base32 in lower case: it survives a double click, a case-folding system and being read out.
var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// encodeText returns prefix_body for the key.
func encodeText(prefix string, key [keySize]byte) string {
	sum := checksum(prefix, key)
	return prefix + "_" + alphabet.EncodeToString(append(key[:], sum[:]...))
}

// decodeBody is the inverse of encodeText, for the part after the underscore. Its errors do not repeat the input.
func decodeBody(prefix, body string) ([keySize]byte, error) {
	var key [keySize]byte
	if len(body) != bodySize {
		return key, fmt.Errorf("has %d characters after the underscore, want %d: copy the whole key", len(body), bodySize)
	}
	decoded, err := alphabet.DecodeString(body)
	if err != nil {
		return key, errors.New("has a character other than a-z and 2-7")
	}
	// The decoder skips line ends and ignores the three bits left over; encoding again leaves one spelling per key.
	if len(decoded) != keySize+sumSize || alphabet.EncodeToString(decoded) != body {
		return key, errors.New("is not canonical base32: copy the key again")
	}
	copy(key[:], decoded)
	if checksum(prefix, key) != [sumSize]byte(decoded[keySize:]) {
		return [keySize]byte{}, errors.New("has a wrong checksum: copy the key again")
	}
	return key, nil
}

// checksum covers the prefix, so a key whose prefix was changed by hand fails.
func checksum(prefix string, key [keySize]byte) [sumSize]byte {
	digest := sha256.Sum256(append([]byte(sumDomain+prefix), key[:]...))
	return [sumSize]byte(digest[:])
}

// minTokenBody is how many base32 characters after join_ make a join token of a text: a whole token has more, and a name that
// happens to start with join_ has fewer before it ends or has another character.
const minTokenBody = 40

// isSecretText reports whether text is meant to be, or to contain, a private key or a join token, well formed or not. It errs
// towards yes.
func isSecretText(text string) bool {
	return refuseSecret(text) != nil
}

// refuseSecret returns an error that says which secret is in a text where none belongs.
func refuseSecret(text string) error {
	text = strings.ToLower(text)
	if strings.Contains(text, secretSuffix+"_") {
		return errors.New("there is a private key where none belongs: remove it, and replace the key, others may have seen it")
	}
	for {
		_, rest, found := strings.Cut(text, tokenPrefix)
		if !found {
			return nil
		}
		body, _ := cutWhile(rest, func(c byte) bool { return isLower(c) || '2' <= c && c <= '7' })
		if len(body) >= minTokenBody {
			return errors.New("there is a join token where none belongs: remove it, and make another one, others may have seen it")
		}
		text = rest
	}
}
