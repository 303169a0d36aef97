package relay

import "github.com/postern-relay/postern/wire"

// AnnounceNextKey tells the peers that are connected, and have pinned the key that is going to be replaced, the next
// one. Whoever changes what Keys returns calls it right after; those who connect later are told in their welcome.
func (s *Server) AnnounceNextKey() {
	current, next := s.keys()
	if next == nil {
		return
	}
	for _, c := range s.admitted() {
		if c.pinned == current.Public() {
			c.say(&wire.HopNextKey{Key: next.Public().Raw()})
		}
	}
}
