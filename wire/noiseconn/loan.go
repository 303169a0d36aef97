package noiseconn

import (
	"errors"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Loan is a client's session for another process of the same user on the same machine: the secret, and a part of the channel numbers,
// which nobody else may use any more. It is worth as much as the client key until the session ends, so that it travels
// only where that key could.
type Loan struct {
	ID      wire.ID       `cbor:"1,keyasint"`
	Peer    wire.Bytes32  `cbor:"2,keyasint"`
	Secret  wire.Bytes32  `cbor:"3,keyasint"`
	Founded time.Duration `cbor:"4,keyasint"` // on the boot clock, which all processes of a machine share
	First   uint64        `cbor:"5,keyasint"`
	Last    uint64        `cbor:"6,keyasint"`
}

// Lend gives n channel numbers of a client's session away. It fails with CodeNoChannel when there are not so many left.
func (s *Session) Lend(n uint64) (Loan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n == 0 || n > s.last-s.next {
		return Loan{}, wire.Errorf(wire.CodeNoChannel, "session has no %d channel numbers left", n)
	}
	l := Loan{ID: s.id, Peer: s.peer, Secret: s.secret, Founded: s.founded, First: s.next + 1, Last: s.next + n}
	s.next += n
	return l, nil
}

// Borrow is the session of a loan. Its clock is the boot clock unless another one is given, which must be that of the lender.
func Borrow(l Loan, clock Clock) (*Session, error) {
	if l.First == 0 || l.First > l.Last || l.Last > wire.SessionChannels {
		return nil, errors.New("a loan without channel numbers")
	}
	return &Session{id: l.ID, peer: l.Peer, secret: l.Secret, founded: l.Founded, clock: clock, next: l.First - 1, last: l.Last}, nil
}

// Left is how many channels a client's session may still open.
func (s *Session) Left() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last - s.next
}
