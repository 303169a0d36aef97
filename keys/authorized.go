package keys

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
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
	// Expires is when the line begins to count as not there, in UTC; zero: never.
	Expires time.Time
	// Rights bound what the client may start.
	Rights Rights
}

// Expired reports whether the line counts as not there at this time.
func (c AuthorizedClient) Expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// AuthorizedClients is the content of an executor's authorized_clients. It is immutable and safe for concurrent use. The zero
// value and nil let nobody in.
type AuthorizedClients struct {
	list  []AuthorizedClient
	byKey map[PublicKey]int
}

// ParseAuthorizedClients reads the clients that an executor lets in, one a line: options first as in OpenSSH (separated by
// commas, values may be quoted), then the key, then a name for people. Blank lines and lines that start with # are passed
// over. The options, in any order, each once but command=, are
//
//	as=NAME            the client acts for NAME, as every line that says so: 1 to 64 of A-Z a-z 0-9 . _ -, not client_...
//	view=all           it sees what every principal runs, and may watch it
//	control=all        it may also act on that: type, signal, end, remove. Not with restrict, command=, sandbox<=, network<=
//	sandbox<=MODE      its widest sandbox: read-only, workspace-write, full-access
//	network<=MODE      its widest network: none, allow-list, host. Below host, full-access is out of reach too
//	expires=TIME       from then on the line counts as not there: 2026-12-01 (as that day begins in UTC), or RFC 3339 with a zone
//	max-time=DURATION  its commands run no longer, whatever it asks for: 90s, 1h30m
//	max-execs=N        no more of its commands run at once, 1 to 1000000
//	command="WORDS"    it may run this and nothing else; several: any of them
//	restrict           all of it the narrowest, also what later versions add: sandbox<=read-only, network<=none, the minimal
//	                   view and so never full-access, no terminal, none but the executor's own variables. Other options of
//	                   the line say otherwise for their one thing: restrict,pty,sandbox<=workspace-write
//	pty                a terminal is allowed. Only with restrict
//
// They are a ceiling: of the executor's own policy, the line and the request the narrowest counts, and nothing that a client
// says widens the line. Without restrict, no option gives more than a line has that leaves it out, but as=, view=, control= and a
// second command=.
//
// WORDS are separated by spaces. Between single quotes a space belongs to the word; nothing else has a meaning, neither
// backslash nor $ nor ~, and no word can hold a single quote. (The double quotes around WORDS are those of the line.) The first
// word is the absolute path of a file, without . and .. in it. A client must ask for exactly these words; it may name the file by
// its last element, and what runs is always the file of the line. A last word * alone, not in quotes, stands for any further
// words, or none. So that nothing but the words is the client's choice, it may set no argv[0], no working folder but the default
// one, no variables but TERM, LANG, LANGUAGE, LC_* and TZ, and leave none out; it is refused if it tries, as it is for the
// variables under restrict. A file that lies in a workspace where the line's commands may write is refused as well, when
// it is to run. What the command does with its input, and with what it finds in a workspace, is its own affair: a make there
// runs what the client likes.
//
// A line with restrict, command=, sandbox<=, network<= or max-time= may take the control of an exec only if its own key started
// it, whatever as= says: it could type into what is wider than itself. It may watch, signal, end and remove the others.
//
// The name is that of the file, for errors. One bad line refuses the whole file: an unknown option or value, a key of another kind
// or one that is listed twice among them. So does what may have been meant as an option and stands after the key: a name for
// people holds none of = < > ", and no word that is an option's name, whatever its case, also with no- before it. A file without lines lets nobody in.
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
	if err := checkComment(comment); err != nil {
		return AuthorizedClient{}, err
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

// NextExpiry is the earliest time after this one at which a line expires, if there is one.
func (a *AuthorizedClients) NextExpiry(after time.Time) (next time.Time, ok bool) {
	if a == nil {
		return time.Time{}, false
	}
	for _, client := range a.list {
		if at := client.Expires; at.After(after) && (!ok || at.Before(next)) {
			next, ok = at, true
		}
	}
	return next, ok
}
