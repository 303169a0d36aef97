package keys

import (
	"encoding/hex"
	"errors"
)

// TokenID names a join token; it is public. The zero value is no token's: nothing parses to it. It is comparable.
type TokenID [16]byte

// ParseTokenID reads 32 lower-case hex digits, as [TokenID.String] writes them. Its errors do not repeat the text.
func ParseTokenID(text string) (TokenID, error) {
	var id TokenID
	if err := decodeHex(id[:], text); err != nil {
		return TokenID{}, errors.New("not a token's id: want 32 lower-case hex digits")
	}
	if id.IsZero() {
		return TokenID{}, errors.New("the all-zero id is no token's")
	}
	return id, nil
}

// String returns 32 lower-case hex digits.
func (id TokenID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero value, which is no token's.
func (id TokenID) IsZero() bool { return id == TokenID{} }

// MarshalText returns String; the zero id is an error, so that it is never stored as if it were one.
func (id TokenID) MarshalText() ([]byte, error) {
	if id.IsZero() {
		return nil, errors.New("the all-zero id is no token's")
	}
	return []byte(id.String()), nil
}

// UnmarshalText is [ParseTokenID]; on an error id keeps its value.
func (id *TokenID) UnmarshalText(text []byte) error {
	parsed, err := ParseTokenID(string(text))
	if err != nil {
		return err
	}
	*id = parsed
	return nil
}

// decodeHex fills dst from exactly as many lower-case hex digits as it holds.
func decodeHex(dst []byte, text string) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return errors.New("has a wrong length")
	}
	for _, c := range []byte(text) {
		if !isDigit(c) && (c < 'a' || c > 'f') {
			return errors.New("has a character other than 0-9 and a-f")
		}
	}
	_, err := hex.Decode(dst, []byte(text))
	return err
}
