package keys

import (
	"crypto/ecdh"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// PrivateKey is a key of one's own. Every way of printing or logging it is redacted; [PrivateKey.Secret] alone gives the
// secret away, and [PrivateKey.ECDH] the key to compute with. Make one with [Generate], [NewPrivateKey], [ParsePrivateKey] or
// [LoadOrGenerate]; the zero value is no key, and its methods other than the printing ones panic. It is immutable and safe
// for concurrent use.
type PrivateKey struct {
	kind   Kind
	public PublicKey
	// key is behind a function, since printers follow pointers: fmt does for a verb that does not fit, such as %s, when the
	// key is in an unexported field and its methods cannot be called.
	key func() *ecdh.PrivateKey
}

// Generate makes a new random key. It fails only for an unknown kind.
func Generate(kind Kind) (*PrivateKey, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate an X25519 key: %w", err)
	}
	return NewPrivateKey(kind, key)
}

// NewPrivateKey gives key a kind. It refuses an unknown kind, nil, and a key of another curve than X25519.
func NewPrivateKey(kind Kind, key *ecdh.PrivateKey) (*PrivateKey, error) {
	if key == nil || key.Curve() != ecdh.X25519() {
		return nil, errors.New("private key is not an X25519 key")
	}
	public, err := NewPublicKey(kind, [keySize]byte(key.PublicKey().Bytes()))
	if err != nil {
		return nil, err
	}
	return &PrivateKey{kind: kind, public: public, key: func() *ecdh.PrivateKey { return key }}, nil
}

// ParsePrivateKey reads what [PrivateKey.Secret] returns, as strictly as [ParsePublicKey]. The error never repeats the text.
func ParsePrivateKey(text string) (*PrivateKey, error) {
	prefix, body, found := strings.Cut(text, "_")
	kind := Kind(strings.TrimSuffix(prefix, secretSuffix))
	if !found || !kind.valid() {
		return nil, errors.New("not a private key: want relaysecret_, execsecret_ or clientsecret_ and 55 characters")
	}
	if prefix == string(kind) {
		return nil, fmt.Errorf("this is %s public key; the private one starts with %ssecret_", kind.noun(), kind)
	}
	raw, err := decodeBody(prefix, body)
	if err != nil {
		return nil, fmt.Errorf("%s_ key: %w", prefix, err)
	}
	key, err := ecdh.X25519().NewPrivateKey(raw[:])
	if err != nil {
		return nil, errors.New("private key is not an X25519 key")
	}
	return NewPrivateKey(kind, key)
}

// Kind returns what the key is for.
func (k *PrivateKey) Kind() Kind { return k.kind }

// Public returns the identity that others pin.
func (k *PrivateKey) Public() PublicKey { return k.public }

// ECDH returns the X25519 key for use in a handshake.
func (k *PrivateKey) ECDH() *ecdh.PrivateKey { return k.key() }

// Secret returns the text form of the private key. It belongs in a file of mode 0600 and nowhere else.
func (k *PrivateKey) Secret() string {
	return encodeText(string(k.kind)+secretSuffix, [keySize]byte(k.key().Bytes()))
}

// String returns a text that names the kind and nothing secret. Like the other printing methods it has a value receiver, so
// that a copied key is redacted too.
func (k PrivateKey) String() string { return "(" + string(k.kind) + " private key, redacted)" }

// GoString is String, for %#v.
func (k PrivateKey) GoString() string { return k.String() }

// Format prints String whatever the verb.
func (k PrivateKey) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, k.String()) }

// LogValue makes slog print String.
func (k PrivateKey) LogValue() slog.Value { return slog.StringValue(k.String()) }
