package noiseconn

import (
	"context"
	"io"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// ResponderConfig is the answering side of a handshake.
type ResponderConfig struct {
	Static *keys.PrivateKey
	// Next is a second key of the responder's, for as long as it replaces the first. An initiator may
	// pin either; nothing but Pending.Local says which one it was. Nil: there is none.
	Next     *keys.PrivateKey
	Prologue []byte
	Epoch    wire.ID // an executor's state epoch; zero on the hop
	Clock    Clock

	random io.Reader                                   // tests only
	encaps func([]byte) (shared, ct []byte, err error) // tests only
}

// Pending is a peer that has proven its key and waits for the decision. There is no way to
// read a record from it: it is accepted or refused, once.
type Pending struct {
	stream wire.Stream
	local  keys.PublicKey
	sec    *secrets
	hello  []byte
	clock  Clock
	at     time.Duration
}

// Accept answers a handshake on s: it reads the first message, sends the second and verifies
// the third. The context bounds it. On an error the stream is of no more use; the caller
// resets it. A first byte of another version is answered with an unauthenticated refusal.
func Accept(ctx context.Context, s wire.Stream, cfg ResponderConfig) (*Pending, error) {
	stop := bound(ctx, s)
	defer stop()
	var first [1]byte
	if _, err := io.ReadFull(s, first[:]); err != nil {
		return nil, stopped(ctx, cut(err))
	}
	if first[0] != firstHandshake {
		return nil, refuseVersion(s, first[0])
	}
	p, err := answer(s, cfg)
	if err != nil {
		return nil, stopped(ctx, err)
	}
	return p, nil
}

func refuseVersion(s wire.Stream, got byte) error {
	e := wire.Errorf(wire.CodeVersion, "this end speaks wire version %d, the peer asked for %d", wire.Version, got)
	writeRefusal(s, e)
	return e
}

// writeRefusal says why there will be no keys. Nobody can verify it, so it is only a
// hint to people, and an error in writing it changes nothing.
func writeRefusal(s wire.Stream, e *wire.Error) {
	if _, err := s.Write([]byte{firstRefusal}); err == nil {
		_ = wire.WriteFrame(s, wire.Refusal(e))
	}
}

// answer goes on after the first byte.
func answer(s wire.Stream, cfg ResponderConfig) (*Pending, error) {
	if cfg.encaps == nil {
		cfg.encaps = encapsulate
	}
	m1, err := readHandshake(s, m1Size, m1Size)
	if err != nil {
		return nil, err
	}
	state, m2, local, err := answerEither(m1, cfg)
	if err != nil {
		return nil, err
	}
	if _, err := s.Write(handshakeFrame([]byte{firstHandshake}, m2)); err != nil {
		return nil, err
	}
	m3, err := readHandshake(s, m3Overhead, m3Max)
	if err != nil {
		return nil, err
	}
	at := cfg.Clock.now()
	hello, sec, err := state.readM3(m3)
	if err != nil {
		return nil, err
	}
	return &Pending{stream: s, local: local, sec: sec, hello: hello, clock: cfg.Clock, at: at}, nil
}

// answerEither answers m1 with the key that its initiator has pinned. Only the first message can tell:
// the responder's key is in the pre-message, so it opens under that key and under no other. Nothing
// was sent when the first key did not open it, and the second one begins with a machine of its own.
func answerEither(m1 []byte, cfg ResponderConfig) (*sentM2, []byte, keys.PublicKey, error) {
	var err error
	for _, static := range cfg.statics() {
		var state *sentM2
		var m2 []byte
		state, m2, err = answerM1(m1, static, cfg.Prologue, cfg.Epoch, cfg.random, cfg.encaps)
		if err == nil {
			return state, m2, static.Public(), nil
		}
		if err != errOtherKey { // opened, and found wrong: this key was the one
			break
		}
	}
	return nil, nil, keys.PublicKey{}, err
}

// statics are the keys that a first message is tried under, in this order, each once. Without a
// Static the only try is the one that says so.
func (cfg *ResponderConfig) statics() []*keys.PrivateKey {
	if cfg.Static == nil || cfg.Next == nil {
		return []*keys.PrivateKey{cfg.Static}
	}
	return []*keys.PrivateKey{cfg.Static, cfg.Next}
}

// Peer is the key that the initiator has proven.
func (p *Pending) Peer() [32]byte { return p.sec.peer }

// Local is the responder's own key that the initiator has pinned: the public half of Static, or of Next.
func (p *Pending) Local() keys.PublicKey { return p.local }

// Hello is what the initiator said in the third message.
func (p *Pending) Hello() []byte { return p.hello }

// Accept sends welcome as the first record. The first message that the initiator sends may be
// as long as a Start.
func (p *Pending) Accept(welcome wire.Message) (*Conn, error) {
	c := p.conn()
	c.in.limit = wire.MaxStart
	if err := c.Send(welcome); err != nil {
		return nil, err
	}
	return c, nil
}

// Refuse sends a reason as the first and last record, where the initiator can verify it.
// The caller resets the stream when it has waited for it to be read.
func (p *Pending) Refuse(e *wire.Error) error {
	c := p.conn()
	if err := c.Send(wire.Refusal(e)); err != nil {
		return err
	}
	return c.CloseWrite()
}

func (p *Pending) conn() *Conn { return handshakeConn(p.stream, p.sec, p.clock, p.at) }
