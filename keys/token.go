package keys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"
)

const (
	tokenPrefix    = "join_"
	maxTokenText   = 8 << 10  // characters of a token, without the white space that a terminal put in
	maxTokenFile   = 16 << 10 // bytes of a token with white space and comments
	maxTokenClient = 16       // clients that one token names
)

// JoinToken is what a new executor needs to join: the relay, a secret that admits it there once, and the clients that it shall
// let in. Whoever holds the text can join in the executor's place, so it is a secret as a private key is. Every way of
// printing a JoinToken is redacted and [JoinToken.Text] alone gives the secrets away, with one exception that Go leaves: fmt
// shows the bytes of one that lies in an unexported field of another struct. The zero value is no token and has no text.
// Nothing changes a JoinToken once it is made; it may be read from everywhere.
type JoinToken struct {
	Relay   RelayURL
	ID      TokenID
	Secret  [32]byte      // shown to the relay, which compares [JoinToken.Hash]
	Pairing [32]byte      // never shown to the relay: the key of [AnnouncementMAC]
	Clients []TokenClient // 1 to 16, each key once
	Pattern string        // the names that the executor may take, see [MatchName]
	Expires time.Time     // in whole seconds, UTC; for people: the relay decides by its own clock
}

// TokenClient is a client that the new executor shall let in.
type TokenClient struct {
	Key  PublicKey
	Name string // as a peer may have it; empty: none
}

// NewJoinToken makes a token with a random id and random secrets. The time is cut to whole seconds.
func NewJoinToken(relay RelayURL, clients []TokenClient, pattern string, expires time.Time) (*JoinToken, error) {
	token := &JoinToken{
		Relay:   relay,
		Clients: append([]TokenClient(nil), clients...),
		Pattern: pattern,
		Expires: time.Unix(expires.Unix(), 0).UTC(),
	}
	for _, random := range [][]byte{token.ID[:], token.Secret[:], token.Pairing[:]} {
		if _, err := rand.Read(random); err != nil {
			return nil, fmt.Errorf("make a join token: %w", err)
		}
	}
	if err := token.check(); err != nil {
		return nil, fmt.Errorf("make a join token: %w", err)
	}
	return token, nil
}

// check refuses what no token may hold.
func (t *JoinToken) check() error {
	if parsed, err := ParseRelayURL(t.Relay.String()); err != nil {
		return err
	} else if parsed != t.Relay {
		return errors.New("relay is not in its usual spelling")
	}
	if t.ID.IsZero() || t.Secret == ([32]byte{}) || t.Pairing == ([32]byte{}) {
		return errors.New("join token has no id or no secret")
	}
	if len(t.Clients) < 1 || len(t.Clients) > maxTokenClient {
		return fmt.Errorf("join token names %d clients: want 1 to %d, or nobody could use the executor", len(t.Clients), maxTokenClient)
	}
	seen := make(map[PublicKey]bool, len(t.Clients))
	for _, client := range t.Clients {
		if client.Key.Kind() != Client {
			return fmt.Errorf("join token names %s key: want a client's", client.Key.Kind().noun())
		}
		if seen[client.Key] {
			return fmt.Errorf("join token names the client %s twice", client.Key.Short())
		}
		seen[client.Key] = true
		if client.Name != "" {
			if err := checkName(client.Name); err != nil {
				return fmt.Errorf("client %s: %w", client.Key.Short(), err)
			}
		}
	}
	if err := CheckPattern(t.Pattern); err != nil {
		return err
	}
	return checkTime(t.Expires)
}

// ParseJoinToken reads what [JoinToken.Text] returns. White space around it and inside is removed first, since terminals wrap
// long lines. Apart from that there is one spelling of each token. It does not look at the expiry: a new machine's clock may
// be hours off. The error never repeats the text.
func ParseJoinToken(text string) (*JoinToken, error) {
	if len(text) > maxTokenFile {
		return nil, fmt.Errorf("join token is longer than %d characters", maxTokenText)
	}
	text = strings.Map(func(r rune) rune {
		if r == ' ' || r == '\t' || r == '\r' || r == '\n' {
			return -1
		}
		return r
	}, text)
	if len(text) > maxTokenText {
		return nil, fmt.Errorf("join token is longer than %d characters", maxTokenText)
	}
	body, found := strings.CutPrefix(text, tokenPrefix)
	if !found {
		return nil, errors.New("not a join token: want join_ and what follows it, as it was printed where it was made")
	}
	token, err := decodeToken(body)
	if err != nil {
		return nil, fmt.Errorf("join token: %w", err)
	}
	return token, nil
}

// ReadJoinToken is [ParseJoinToken] for a file or a pipe of at most 16 KiB, in which lines that start with # are passed over.
func ReadJoinToken(r io.Reader) (*JoinToken, error) {
	content, err := io.ReadAll(io.LimitReader(r, maxTokenFile+1))
	if err != nil {
		return nil, fmt.Errorf("read join token: %w", err)
	}
	if len(content) > maxTokenFile {
		return nil, fmt.Errorf("what should be a join token is larger than %d bytes", maxTokenFile)
	}
	var text strings.Builder
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(strings.TrimLeft(line, " \t"), "#") {
			text.WriteString(line)
		}
	}
	if strings.Trim(text.String(), " \t\r\n") == "" {
		return nil, errors.New("there is no join token in the input: it is empty")
	}
	return ParseJoinToken(text.String())
}

// Text returns the token for its reader: join_ and several hundred lower-case letters and digits. It belongs in a file of mode
// 0600 or on standard input, never in an argument or in the environment.
func (t *JoinToken) Text() (string, error) {
	if err := t.check(); err != nil {
		return "", err
	}
	body, err := encodeToken(t)
	if err != nil {
		return "", err
	}
	if len(tokenPrefix)+len(body) > maxTokenText {
		return "", fmt.Errorf("join token would be longer than %d characters", maxTokenText)
	}
	return tokenPrefix + body, nil
}

// Hash returns all that the relay stores of the secrets, see [HashJoinSecret].
func (t *JoinToken) Hash() [32]byte { return HashJoinSecret(t.ID, t.Secret) }

// redactedToken is what a JoinToken prints as.
const redactedToken = "(join token, redacted)"

// String returns a text that holds nothing secret. Like the other printing methods it has a value receiver, so that a copied
// token is redacted too.
func (t JoinToken) String() string { return redactedToken }

// GoString is String, for %#v.
func (t JoinToken) GoString() string { return redactedToken }

// Format prints String whatever the verb.
func (t JoinToken) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redactedToken) }

// LogValue makes slog print String.
func (t JoinToken) LogValue() slog.Value { return slog.StringValue(redactedToken) }

// MarshalText returns String, so that JSON is redacted too.
func (t JoinToken) MarshalText() ([]byte, error) { return []byte(redactedToken), nil }
