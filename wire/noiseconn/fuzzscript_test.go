package noiseconn

import (
	"bytes"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// network carries whole messages between an initiator and a responder as a script
// wants it.
type network struct {
	toInitiator, toResponder [][]byte

	sent *sentM1
	got  *secrets // initiator: after the third message
	open bool     // initiator: after the welcome

	answered *sentM2
	have     *secrets // responder

	initiatorDead, responderDead bool
}

// initiator is one message at the initiator. Any error is its end.
func (n *network) initiator(m []byte, hello []byte) {
	switch {
	case n.initiatorDead || n.open:
	case n.got == nil:
		state, err := n.sent.readM2(m)
		if err != nil {
			n.initiatorDead = true
			return
		}
		m3, sec, err := state.writeM3(hello)
		if err != nil {
			n.initiatorDead = true
			return
		}
		n.got, n.toResponder = sec, append(n.toResponder, m3)
	default:
		if len(m) < 2 {
			n.initiatorDead = true
			return
		}
		_, err := newRecordCipher(n.got.receive).open(bytes.Clone(m[2:]))
		n.open, n.initiatorDead = err == nil, err != nil
	}
}

func (n *network) responder(m []byte, cfg ResponderConfig) {
	switch {
	case n.responderDead || n.have != nil:
	case n.answered == nil:
		state, m2, err := answerM1(m, cfg.Static, cfg.Prologue, cfg.Epoch, nil, encapsulate)
		if err != nil {
			n.responderDead = true
			return
		}
		n.answered, n.toInitiator = state, append(n.toInitiator, m2)
	default:
		_, sec, err := n.answered.readM3(m)
		if err != nil {
			n.responderDead = true
			return
		}
		n.have = sec
		welcome, err := newRecordCipher(sec.send).seal(frameRecord(append(make([]byte, 2+recordHead), ping(1)...), kindLast))
		if err != nil {
			n.responderDead = true
			return
		}
		n.toInitiator = append(n.toInitiator, welcome)
	}
}

// take removes the first message that waits.
func take(queue *[][]byte) ([]byte, bool) {
	if len(*queue) == 0 {
		return nil, false
	}
	m := (*queue)[0]
	*queue = (*queue)[1:]
	return m, true
}

// FuzzHandshakeScript delivers, drops, repeats, swaps and reflects messages. Whatever
// happens, a side is only open when the other has the same transcript and the same keys.
func FuzzHandshakeScript(f *testing.F) {
	tr := newTranscript(f)
	f.Add([]byte{0, 1, 0, 1})             // as it should be
	f.Add([]byte{4, 0, 1, 0, 0, 1, 1})    // the first message twice
	f.Add([]byte{8, 1, 0, 1})             // reflected to its sender
	f.Add([]byte{0, 5, 1, 0, 1, 1, 0})    // the second twice
	f.Add([]byte{0, 1, 4, 6, 0, 0, 1})    // the third twice, swapped
	f.Add([]byte{0, 1, 2, 0, 1})          // the third dropped
	f.Add([]byte{0, 1, 0, 9, 1, 0, 1, 0}) // the welcome reflected
	f.Fuzz(func(t *testing.T, script []byte) {
		cfg := tr.initiator
		sent, m1, err := startInitiator(cfg.Static, cfg.Peer, cfg.Prologue, nil, cfg.kem)
		if err != nil {
			t.Fatal(err)
		}
		n := &network{sent: sent, toResponder: [][]byte{m1}}
		for _, op := range script[:min(len(script), 40)] {
			queue, towardsResponder := &n.toResponder, true
			if op&1 == 1 {
				queue, towardsResponder = &n.toInitiator, false
			}
			switch op >> 1 {
			default: // deliver
				if m, ok := take(queue); ok && towardsResponder {
					n.responder(m, tr.responder)
				} else if ok {
					n.initiator(m, tr.v.Hello)
				}
			case 1:
				take(queue)
			case 2:
				if len(*queue) > 0 && len(*queue) < 8 {
					*queue = append(*queue, (*queue)[0])
				}
			case 3:
				if q := *queue; len(q) > 1 {
					q[0], q[1] = q[1], q[0]
				}
			case 4:
				if m, ok := take(queue); ok && towardsResponder {
					n.initiator(m, tr.v.Hello)
				} else if ok {
					n.responder(m, tr.responder)
				}
			}
		}
		if n.open && n.have == nil {
			t.Fatal("the initiator is open, the responder is not")
		}
		if n.have != nil {
			if n.got == nil || n.got.hash != n.have.hash || n.got.send != n.have.receive || n.got.receive != n.have.send {
				t.Fatal("the responder is open with keys that the initiator does not have")
			}
			if n.have.peer != cfg.Static.Public().Raw() || n.got.peer != wire.Bytes32(cfg.Peer) {
				t.Fatal("a side is open with another peer")
			}
		}
	})
}
