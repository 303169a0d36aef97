package keys

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	pairPrefix = "pair" + secretSuffix // of the secret's text, and part of its checksum

	// maxPairingLine has room for as many keys as a token has uses.
	maxPairingLine = 1 << 20
)

// Pairing is what a client remembers of a join token that it made: enough to know the executors that came with it. Every way of
// printing it is redacted, with the exception that [JoinToken] has too. The zero value verifies nobody.
type Pairing struct {
	ID      TokenID
	Secret  [32]byte // the token's Pairing, which the relay never saw
	Relay   RelayURL
	Pattern string      // the names that the token allows, see [MatchName]
	Uses    int         // how many executors may come with it, 1 to 10000
	Expires time.Time   // of the token, in whole seconds, UTC; [Pairing.Verify] does not look at it
	Pinned  []PublicKey // the executors that came with it so far, each once, at most Uses
}

// Verify returns nil if mac proves that the executor had the token when it announced its key and name ([AnnouncementMAC]), the
// token allows the name, and it is pinned already or the token has a use left. The MAC is compared in constant time. Whoever
// gets nil for a key that is not in Pinned adds it there, see [UpdatePairing].
func (p Pairing) Verify(executor PublicKey, name string, mac [32]byte) error {
	if p.ID.IsZero() || p.Secret == ([32]byte{}) {
		return errors.New("there is no token to verify an announcement with")
	}
	if executor.Kind() != Executor {
		return fmt.Errorf("announcement has %s key: want an executor's", executor.Kind().noun())
	}
	want := AnnouncementMAC(p.Secret, p.ID, executor, name)
	if !hmac.Equal(want[:], mac[:]) {
		return fmt.Errorf("announcement of %s is not by who had the token %s: do not trust this key", executor.Short(), p.ID)
	}
	if !MatchName(p.Pattern, name) {
		return fmt.Errorf("executor %s has a name that its token does not allow: want %q", executor.Short(), p.Pattern)
	}
	if !slices.Contains(p.Pinned, executor) && len(p.Pinned) >= p.Uses {
		return fmt.Errorf("token %s was for %d executors, and all of them came before %s: make another token", p.ID, p.Uses, executor.Short())
	}
	return nil
}

// Pairings is the content of a client's pairings file. It is immutable and safe for concurrent use. The zero value and nil hold
// none.
type Pairings struct {
	list  []Pairing
	lines []int // where each of the list stands in its file, from 1
	byID  map[TokenID]int
}

// ParsePairings reads what a client remembers of its tokens, one a line, with any number of keys that came:
//
//	ID pairsecret_... RELAY-URL name=PATTERN uses=N expires=TIME [pinned=KEY]...
//
// Blank lines and lines that start with # are passed over. The name is that of the file, for errors, which never repeat a
// secret. One bad line refuses the whole file, as does a token that is there twice.
func ParsePairings(name string, r io.Reader) (*Pairings, error) {
	pairings := &Pairings{byID: make(map[TokenID]int)}
	err := eachLineUpTo(maxPairingLine, name, r, func(number int, line string) error {
		pairing, err := parsePairing(line)
		if err != nil {
			return err
		}
		if first, taken := pairings.byID[pairing.ID]; taken {
			return fmt.Errorf("token %s is already on line %d", pairing.ID, pairings.lines[first])
		}
		pairings.byID[pairing.ID] = len(pairings.list)
		pairings.list = append(pairings.list, pairing)
		pairings.lines = append(pairings.lines, number)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pairings, nil
}

// parsePairing reads one line.
func parsePairing(line string) (Pairing, error) {
	columns := fields(line)
	if len(columns) < 3 {
		return Pairing{}, fmt.Errorf("line has %d fields: want ID SECRET RELAY-URL name=PATTERN uses=N expires=TIME", len(columns))
	}
	var pairing Pairing
	var err error
	if pairing.ID, err = ParseTokenID(columns[0]); err != nil {
		return Pairing{}, err
	}
	body, ok := strings.CutPrefix(columns[1], pairPrefix+"_")
	if !ok {
		return Pairing{}, errors.New("the token's secret does not come second: want " + pairPrefix + "_ and 55 characters")
	}
	if pairing.Secret, err = decodeBody(pairPrefix, body); err != nil {
		return Pairing{}, fmt.Errorf("%s_ secret: %w", pairPrefix, err)
	}
	if pairing.Relay, err = ParseRelayURL(columns[2]); err != nil {
		return Pairing{}, err
	}
	err = readOptions(columns[3:], setters{
		"name":    patternInto(&pairing.Pattern),
		"uses":    numberInto(&pairing.Uses, 1, maxTokenUses),
		"expires": timeInto(&pairing.Expires),
		"pinned": func(value string) error {
			var key PublicKey
			err := keyInto(&key, Executor)(value)
			pairing.Pinned = append(pairing.Pinned, key)
			return err
		},
	}, "pinned")
	if err != nil {
		return Pairing{}, err
	}
	return pairing, pairing.check()
}

// check refuses what the options of a line do not show one by one.
func (p Pairing) check() error {
	if p.Secret == ([32]byte{}) {
		return errors.New("the all-zero secret is no token's")
	}
	if p.Pattern == "" || p.Uses == 0 || p.Expires.IsZero() {
		return errors.New("name=, uses= or expires= is missing: restore the line, or remove it and make another token")
	}
	if len(p.Pinned) > p.Uses {
		return fmt.Errorf("%d keys are pinned by a token of %d uses", len(p.Pinned), p.Uses)
	}
	seen := make(map[PublicKey]bool, len(p.Pinned))
	for _, key := range p.Pinned {
		if seen[key] {
			return fmt.Errorf("key %s is pinned twice", key.Short())
		}
		seen[key] = true
	}
	return nil
}

// line writes the pairing as its line, secret included, without the line end.
func (p Pairing) line() string {
	words := []string{
		p.ID.String(), encodeText(pairPrefix, p.Secret), p.Relay.String(),
		"name=" + p.Pattern, "uses=" + strconv.Itoa(p.Uses), "expires=" + formatTime(p.Expires),
	}
	for _, key := range p.Pinned {
		words = append(words, "pinned="+key.String())
	}
	return strings.Join(words, " ")
}

// Lookup returns what is remembered of a token, as a copy.
func (p *Pairings) Lookup(id TokenID) (Pairing, bool) {
	if p == nil {
		return Pairing{}, false
	}
	i, found := p.byID[id]
	if !found {
		return Pairing{}, false
	}
	return p.list[i].clone(), true
}

// All returns the pairings in the order of the file, as a copy.
func (p *Pairings) All() []Pairing {
	if p == nil {
		return nil
	}
	all := make([]Pairing, 0, len(p.list))
	for _, pairing := range p.list {
		all = append(all, pairing.clone())
	}
	return all
}

func (p Pairing) clone() Pairing {
	p.Pinned = slices.Clone(p.Pinned)
	return p
}

// redactedPairing is what a Pairing prints as.
const redactedPairing = "(pairing secret, redacted)"

// String returns a text that holds nothing secret. Like the other printing methods it has a value receiver, so that a copied
// pairing is redacted too.
func (p Pairing) String() string { return redactedPairing }

// GoString is String, for %#v.
func (p Pairing) GoString() string { return redactedPairing }

// Format prints String whatever the verb.
func (p Pairing) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redactedPairing) }

// LogValue makes slog print String.
func (p Pairing) LogValue() slog.Value { return slog.StringValue(redactedPairing) }

// MarshalText returns String, so that JSON is redacted too.
func (p Pairing) MarshalText() ([]byte, error) { return []byte(redactedPairing), nil }

// String returns a text that holds nothing secret.
func (p Pairings) String() string { return redactedPairing }

// GoString is String, for %#v.
func (p Pairings) GoString() string { return redactedPairing }

// Format prints String whatever the verb, since fmt does not call the methods of what lies in unexported fields.
func (p Pairings) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redactedPairing) }

// LogValue makes slog print String.
func (p Pairings) LogValue() slog.Value { return slog.StringValue(redactedPairing) }
