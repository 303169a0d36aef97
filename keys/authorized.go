package keys

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// AuthorizedClient is one line of an executor's authorized_clients: a client that may run commands.
type AuthorizedClient struct {
	Key  PublicKey
	Name string // the comment after the key, for logs; may be empty or hold spaces
	Line int    // where it stands in the file, from 1

	// As is the principal that the client acts for, which other lines may name too: what one of them starts belongs to all
	// of them. Empty: the client acts for its own key alone.
	As string
	// ViewAll lets the client see the commands of every principal, ControlAll act on them too; ControlAll implies ViewAll.
	ViewAll, ControlAll bool
}

// AuthorizedClients is the content of an executor's authorized_clients. It is immutable and safe for concurrent use. The zero
// value and nil let nobody in.
type AuthorizedClients struct {
	list  []AuthorizedClient
	byKey map[PublicKey]int
}

// ParseAuthorizedClients reads the clients that an executor lets in, one a line: options first as in OpenSSH (separated by
// commas, values may be quoted), then the key, then a name for people. Blank lines and lines that start with # are passed
// over. The options are
//
//	as=NAME      the client acts for NAME, as every line that says so: 1 to 64 of A-Z a-z 0-9 . _ -, not client_...
//	view=all     it sees what every principal runs, and may watch it
//	control=all  it may also act on that: type, signal, end, remove
//
// The name is that of the file, for errors. One bad line refuses the whole file: an unknown option or value, a key of another
// kind or one that is listed twice among them.
func ParseAuthorizedClients(name string, r io.Reader) (*AuthorizedClients, error) {
	clients := &AuthorizedClients{byKey: make(map[PublicKey]int)}
	err := eachLine(name, r, func(number int, line string) error {
		client, err := parseAuthorizedClient(line)
		if err != nil {
			return err
		}
		client.Line = number
		if first, taken := clients.byKey[client.Key]; taken {
			return fmt.Errorf("key %s is already on line %d", client.Key.Short(), clients.list[first].Line)
		}
		clients.byKey[client.Key] = len(clients.list)
		clients.list = append(clients.list, client)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return clients, nil
}

// parseAuthorizedClient reads one line.
func parseAuthorizedClient(line string) (AuthorizedClient, error) {
	var options []option
	if !startsWithKey(line) {
		var err error
		if options, line, err = cutOptions(line); err != nil {
			return AuthorizedClient{}, err
		}
	}
	var client AuthorizedClient
	// The options come before the key in the errors too: an unknown one is the more important news.
	if err := applyOptions(&client, options); err != nil {
		return AuthorizedClient{}, err
	}
	keyText, comment := cutField(line)
	if keyText == "" {
		return AuthorizedClient{}, errors.New("no key after the options")
	}
	key, err := parseKeyOf(Client, keyText)
	if err != nil {
		return AuthorizedClient{}, err
	}
	if isSecretText(comment) {
		return AuthorizedClient{}, errors.New("there is a private key where a name belongs: replace the key, others may have seen it")
	}
	for word := range strings.FieldsSeq(comment) {
		if name, _, ok := strings.Cut(word, "="); ok && clientOptions[name] != nil {
			return AuthorizedClient{}, fmt.Errorf("option %q stands after the key, where it is only a name: put it before", name)
		}
	}
	client.Key, client.Name = key, comment
	return client, nil
}

// Lookup returns the line that lets key in.
func (a *AuthorizedClients) Lookup(key PublicKey) (AuthorizedClient, bool) {
	if a == nil {
		return AuthorizedClient{}, false
	}
	i, found := a.byKey[key]
	if !found {
		return AuthorizedClient{}, false
	}
	return a.list[i], true
}

// All returns the clients in the order of the file, as a copy.
func (a *AuthorizedClients) All() []AuthorizedClient {
	if a == nil {
		return nil
	}
	return slices.Clone(a.list)
}
