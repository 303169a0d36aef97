package noiseconn

import (
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

const (
	channelsInfo = "postern channels v1"
	channelInfo  = "postern channel v1"
)

// Session is what a client and an executor keep of a handshake: the secret from which the
// keys of later circuits are derived, and the clock that both started at the third message. It
// does not depend on any connection or relay. It is safe for concurrent use.
//
// How long it lives, and who may still use it, is its owner's to decide (wire.SessionAge
// and the times beside it).
type Session struct {
	id      wire.ID
	peer    [32]byte
	secret  [32]byte
	founded time.Duration
	clock   Clock

	mu      sync.Mutex
	next    uint64 // client: the last number used
	last    uint64 // client: the highest that it may use
	highest uint64 // executor
	used    [wire.SessionWindow / 64]uint64
}

// NewSession founds the client's session of an end-to-end handshake: c is its channel 0, hello
// and welcome what the two sides said in it.
func NewSession(c *Conn, hello *wire.Hello, welcome *wire.Welcome) (*Session, error) {
	if c.secrets == nil {
		return nil, errors.New("a derived channel founds no session")
	}
	return foundSession(c.secrets, c.clock, c.founded, hello, welcome)
}

// NewSession founds the executor's session, before the client is told: whatever the client
// opens after reading welcome finds it.
func (p *Pending) NewSession(hello *wire.Hello, welcome *wire.Welcome) (*Session, error) {
	return foundSession(p.sec, p.clock, p.at, hello, welcome)
}

func foundSession(sec *secrets, clock Clock, at time.Duration, hello *wire.Hello, welcome *wire.Welcome) (*Session, error) {
	ikm := append(append(make([]byte, 0, 64), hello.Random[:]...), welcome.Random[:]...)
	k, err := hkdf.Key(sha256.New, ikm, sec.hash[:], channelsInfo, 32)
	if err != nil {
		return nil, err
	}
	return &Session{id: welcome.Session, peer: sec.peer, secret: [32]byte(k), founded: at, clock: clock, last: wire.SessionChannels}, nil
}

// ID is the number that the executor gave it.
func (s *Session) ID() wire.ID { return s.id }

// Peer is the key that the other side has proven.
func (s *Session) Peer() [32]byte { return s.peer }

// Clock is the time since the third message was sent or received.
func (s *Session) Clock() time.Duration { return s.clock.now() - s.founded }

// Channels is how many channels were opened, channel 0 left out.
func (s *Session) Channels() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.next, s.highest)
}

// take is the client's next channel number.
func (s *Session) take() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.next >= s.last {
		return 0, wire.Errorf(wire.CodeNoChannel, "session has no channel numbers left")
	}
	s.next++
	return s.next, nil
}

// fresh reports whether n was not used yet and is not too far behind the highest.
func (s *Session) fresh(n uint64) bool {
	switch {
	case n == 0 || n > wire.SessionChannels || n+wire.SessionWindow <= s.highest:
		return false
	case n > s.highest:
		return true
	}
	return s.used[n/64%uint64(len(s.used))]&(1<<(n%64)) == 0
}

// mark uses n up, and reports whether it was still fresh: of two first records with one
// number only one gets here first.
func (s *Session) mark(n uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.fresh(n) {
		return false
	}
	if n > s.highest {
		for m := s.highest + 1; m < n && m <= s.highest+wire.SessionWindow; m++ {
			s.clear(m)
		}
		s.clear(n)
		s.highest = n
	}
	s.used[n/64%uint64(len(s.used))] |= 1 << (n % 64)
	return true
}

func (s *Session) clear(n uint64) { s.used[n/64%uint64(len(s.used))] &^= 1 << (n % 64) }

// channelKey derives one direction of channel n. The opener's random is in both, the
// answerer's in its own, so that neither side alone can bring an old key back.
func (s *Session) channelKey(direction byte, n uint64, opener, answerer []byte) ([32]byte, error) {
	info := append(make([]byte, 0, 96), channelInfo...)
	info = append(info, direction)
	info = append(info, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	info = append(append(info, opener...), answerer...)
	k, err := hkdf.Expand(sha256.New, s.secret[:], string(info), 32)
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(k), nil
}
