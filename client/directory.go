package client

import (
	"context"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// ExecutorEntry is one executor of the client's tenant, as the relay tells it. Key is not to be pinned on the relay's
// word: only MAC proves it, under the pairing secret of a token that the client has made itself. What the
// relay did not tell is zero.
type ExecutorEntry struct {
	Key     keys.PublicKey
	Name    string // not fit for a terminal as it is: any bytes, 255 at most
	Online  bool
	Seen    time.Time      // when it was last connected, on the relay's clock
	Token   [16]byte       // id of the token that it was enrolled with
	MAC     [32]byte       // of its announcement under that token; zero without Token
	Follows keys.PublicKey // the key that this one is to replace
}

// Executors asks the relay for the executors of the client's tenant. The list is whole or there is an error: one that
// is of wire.CodeUnsupported where the relay is too old to have tenants. The context bounds it.
func (c *Client) Executors(ctx context.Context) ([]ExecutorEntry, error) {
	return collect(ctx, c.link, question{"list executors", "a list of executors", &wire.ListExecutors{}}, entryOf)
}

func entryOf(m *wire.ExecutorItem) (ExecutorEntry, error) {
	e := ExecutorEntry{Name: m.Name, Online: m.Online}
	var err error
	if e.Key, err = keys.NewPublicKey(keys.Executor, m.Executor); err == nil && m.Follows != nil {
		e.Follows, err = keys.NewPublicKey(keys.Executor, *m.Follows)
	}
	if err != nil {
		return ExecutorEntry{}, wire.Errorf(wire.CodeProtocol, "the relay listed an executor with an impossible key: %v", err)
	}
	if m.Seen != 0 {
		e.Seen = time.UnixMilli(m.Seen)
		if year := e.Seen.UTC().Year(); year < 1970 || year > 9999 { // no JSON would take it
			return ExecutorEntry{}, wire.Errorf(wire.CodeProtocol, "the relay listed an executor with an impossible time")
		}
	}
	if m.Token != nil && m.MAC != nil {
		e.Token, e.MAC = *m.Token, *m.MAC
	}
	return e, nil
}

// AddToken makes the relay accept a join token for the client's tenant. The same token may be added again. An
// error that is wire.ErrLost leaves open whether it was added; see Executors for a relay that is too old.
func (c *Client) AddToken(ctx context.Context, token wire.AddToken) error {
	return c.link.command(ctx, question{"add a join token", "join tokens", &token})
}

// RemoveToken takes a token of the client's tenant back; executors that it has enrolled stay. See AddToken for errors.
func (c *Client) RemoveToken(ctx context.Context, id wire.ID) error {
	return c.link.command(ctx, question{"remove a join token", "join tokens", &wire.RemoveToken{ID: id}})
}

// Tokens asks the relay for the join tokens of the client's tenant, those included that are spent. See Executors for errors.
func (c *Client) Tokens(ctx context.Context) ([]wire.TokenItem, error) {
	return collect(ctx, c.link, question{"list join tokens", "join tokens", &wire.ListTokens{}},
		func(m *wire.TokenItem) (wire.TokenItem, error) { return *m, nil })
}
