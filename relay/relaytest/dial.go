package relaytest

import (
	"context"
	"errors"

	"github.com/postern-relay/postern/wire/quicconn"
)

// Dial is quicconn.Dial by a peer that, as all peers do, tries again when nothing came back: a machine that runs many tests
// at once may be silent for longer than one dial waits.
func Dial(ctx context.Context, address string, o quicconn.Options) (c *quicconn.Conn, err error) {
	for range 5 {
		if c, err = quicconn.Dial(ctx, address, o); !errors.Is(err, quicconn.ErrNoAnswer) {
			return c, err
		}
	}
	return nil, err
}
