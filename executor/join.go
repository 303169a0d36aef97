package executor

import (
	"context"
	"errors"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
)

// JoinConfig is what it takes to become a member of a tenant.
type JoinConfig struct {
	Key   *keys.PrivateKey
	Name  string // wanted; one that the token allows
	Token *keys.JoinToken
	// Dial makes the connection to the token's relay.
	Dial     func(context.Context) (wire.Transport, error)
	Software string
}

// Join makes the executor's key a member of the tenant of a token, by one connection on which it
// takes no circuit: nobody can run a command before the caller has put the token away. The token's
// secret is told to the relay whose key the token names, and to nobody else; its expiry is not
// looked at, since the clock of a new machine may be hours off. With the key that has joined before it
// uses nothing up. A refusal of the relay's is a *wire.Error.
func Join(ctx context.Context, cfg JoinConfig) (wire.HopWelcome, error) {
	if cfg.Key == nil || cfg.Key.Kind() != keys.Executor || cfg.Token == nil || cfg.Dial == nil {
		return wire.HopWelcome{}, errors.New("join: no executor key, token or relay")
	}
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	t, err := cfg.Dial(ctx)
	if err != nil {
		return wire.HopWelcome{}, err
	}
	defer t.Close(wire.CodeShutdown, "")
	mac := keys.AnnouncementMAC(cfg.Token.Pairing, cfg.Token.ID, cfg.Key.Public(), cfg.Name)
	hop, err := noiseconn.Join(ctx, t, cfg.Key, cfg.Token.Relay.Key, &wire.HopHello{
		Role: wire.RoleExecutor, Versions: wire.Versions, Name: cfg.Name, Instance: wire.ID(wire.NewExecID()), Software: cfg.Software,
		Join: &wire.JoinProof{Token: wire.ID(cfg.Token.ID), Secret: cfg.Token.Secret, MAC: mac},
	})
	if err != nil {
		return wire.HopWelcome{}, err
	}
	if hop.Welcome.Name != cfg.Name { // then the announcement would prove another name
		return wire.HopWelcome{}, wire.Errorf(wire.CodeProtocol, "the relay admitted this machine as %q instead of %q", hop.Welcome.Name, cfg.Name)
	}
	return hop.Welcome, nil
}

// WorthAnotherTry reports whether Join may succeed later without anybody doing anything: the network or the relay is not
// there yet, or is busy.
func WorthAnotherTry(err error) (again bool, after time.Duration) {
	e, refused := errors.AsType[*wire.Error](err)
	if !refused {
		return true, 0
	}
	switch e.Code {
	case wire.CodeBusy, wire.CodeDuplicate, wire.CodeShutdown, wire.CodeTimeout, wire.CodeInternal:
		return true, e.RetryAfter
	}
	return false, 0
}
