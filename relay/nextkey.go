package relay

import (
	"math/rand/v2"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// AnnounceNextKey tells the peers that are connected, and have pinned the key that is going to be replaced, the next
// one. Whoever changes what Keys returns calls it right after; those who connect later are told in their welcome.
//
// A peer that connected under a key from before the current one cannot be told anything that it believes: it has learnt the
// current one since, and takes the next one only from that. Its connection is ended, and it comes back under the current key.
func (s *Server) AnnounceNextKey() {
	current, next := s.keys()
	if next == nil {
		return
	}
	peers := s.admitted()
	over := spread(len(peers))
	for _, c := range peers {
		switch c.pinned {
		case current.Public():
			c.say(&wire.HopNextKey{Key: next.Public().Raw()})
		case next.Public():
		default:
			c.comeAgain(over)
		}
	}
}

// comeAgain ends a connection at some moment of the time over, so that not all come back at once.
func (c *conn) comeAgain(over time.Duration) {
	wait := tellTime
	if over > 0 {
		wait += rand.N(over)
	}
	c.goaway(0)
	time.AfterFunc(wait, func() { c.close(wire.Errorf(wire.CodeShutdown, "the relay has replaced its key: connect again")) })
}

// tellNextKey is for a peer whose handshake began before there was a next key.
func (c *conn) tellNextKey(told *keys.PrivateKey) {
	current, next := c.server.keys()
	if next != nil && told == nil && c.pinned == current.Public() {
		c.say(&wire.HopNextKey{Key: next.Public().Raw()})
	}
}
