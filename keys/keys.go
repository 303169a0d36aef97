// Package keys holds the identities of postern and the text files that say who is trusted.
//
// An identity is an X25519 key with a kind: a relay, an executor or a client. The kind is part of the text form and of its
// checksum, so a client's key pasted where an executor's is wanted is refused. Trust is never learnt from the network: it is
// written in files that people know from SSH, and this package reads, edits and rereads them ([ParseAuthorizedClients],
// [ParseTenants], [ParseKnownExecutors], [ParsePairings], [WatchFile]). A file with one bad line is refused whole, because a
// list that is applied in part allows something that nobody wrote down. What lets a new machine into these files without a
// person's hand is a [JoinToken], which a person made.
//
// The package does no handshakes and opens no connections; it imports nothing else of postern's. Memory that held a secret is
// not wiped, since Go gives no guarantee that no copy remains.
//
// Start with [PublicKey] and [ParsePublicKey]; then [LoadOrGenerate] for a key of one's own, and [RelayURL] for how a relay
// is written.
package keys

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
)

// Kind says what an identity is for. The zero value is no kind and is refused everywhere.
type Kind string

// The kinds of identity. Their values are the prefixes of the text form and part of its checksum.
const (
	Relay    Kind = "relay"  // a relay, pinned by its URL
	Executor Kind = "exec"   // a machine that runs commands
	Client   Kind = "client" // a user or a program that starts commands
)

// valid reports whether k is one of the kinds above.
func (k Kind) valid() bool {
	return k == Relay || k == Executor || k == Client
}

// noun is the kind as a sentence needs it, with its article.
func (k Kind) noun() string {
	switch k {
	case Relay:
		return "a relay's"
	case Executor:
		return "an executor's"
	case Client:
		return "a client's"
	}
	return "an unknown kind's"
}

// PublicKey is the identity of one peer. It is comparable, so it serves as a map key; two keys are equal when kind and bytes
// are. The zero value is no key: it has no text, and nothing parses to it. Values are safe for concurrent use.
type PublicKey struct {
	kind Kind
	raw  [keySize]byte
}

// NewPublicKey makes a PublicKey from the bytes of an X25519 public key. It refuses an unknown kind and the all-zero key,
// which belongs to nobody.
func NewPublicKey(kind Kind, raw [32]byte) (PublicKey, error) {
	if !kind.valid() {
		return PublicKey{}, fmt.Errorf("key of unknown kind %.20q: want relay, exec or client", string(kind))
	}
	if raw == ([keySize]byte{}) {
		return PublicKey{}, errors.New("the all-zero key is nobody's key")
	}
	return PublicKey{kind: kind, raw: raw}, nil
}

// ParsePublicKey reads the text form, as [PublicKey.String] writes it. It accepts exactly one spelling of each key: lower
// case, canonical base32, right checksum, no space around it. The error never repeats the text, which may be a secret that
// was pasted by mistake.
func ParsePublicKey(text string) (PublicKey, error) {
	if isSecretText(text) {
		if !strings.Contains(strings.ToLower(text), secretSuffix+"_") {
			return PublicKey{}, errors.New("this is a join token, not a key; make another one if others saw it")
		}
		return PublicKey{}, errors.New("this is a private key; give its public key, and replace the private one if others saw it")
	}
	prefix, body, found := strings.Cut(text, "_")
	kind := Kind(prefix)
	if !found || !kind.valid() {
		return PublicKey{}, errors.New("not a public key: want relay_, exec_ or client_ and 55 characters")
	}
	raw, err := decodeBody(prefix, body)
	if err != nil {
		return PublicKey{}, fmt.Errorf("%s_ key: %w", prefix, err)
	}
	return NewPublicKey(kind, raw)
}

// Kind returns what the key is for, "" for the zero key.
func (p PublicKey) Kind() Kind { return p.kind }

// Raw returns the 32 bytes of the X25519 public key, all zero for the zero key.
func (p PublicKey) Raw() [32]byte { return p.raw }

// IsZero reports whether p is the zero value, which is no key.
func (p PublicKey) IsZero() bool { return p == PublicKey{} }

// String returns the full text form, such as "exec_" and 55 characters, and "" for the zero key.
func (p PublicKey) String() string {
	if p.IsZero() {
		return ""
	}
	return encodeText(string(p.kind), p.raw)
}

// shortLen is how many characters of a key logs show: 40 bits, enough to find a key in a file, far too few to trust.
const shortLen = 8

// Short returns a shortened form for logs. It is never accepted as input, because a short form can be imitated.
func (p PublicKey) Short() string {
	if p.IsZero() {
		return "(no key)"
	}
	return p.String()[:len(p.kind)+1+shortLen] + "..."
}

// LogValue makes slog print the short form.
func (p PublicKey) LogValue() slog.Value { return slog.StringValue(p.Short()) }

// MarshalText returns the full text form. The zero key is an error, so that it is never stored as if it were one.
func (p PublicKey) MarshalText() ([]byte, error) {
	if p.IsZero() {
		return nil, errors.New("the zero key has no text form")
	}
	return []byte(p.String()), nil
}

// UnmarshalText is [ParsePublicKey]; on an error p keeps its value.
func (p *PublicKey) UnmarshalText(text []byte) error {
	parsed, err := ParsePublicKey(string(text))
	if err != nil {
		return err
	}
	*p = parsed
	return nil
}
