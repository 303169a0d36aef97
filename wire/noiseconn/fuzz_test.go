package noiseconn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// chunked hands a stream out in pieces whose sizes come from a list, over and over.
type chunked struct {
	*script
	sizes []byte
	next  int
	most  int // the largest buffer it was asked to fill
}

func (c *chunked) Read(p []byte) (int, error) {
	c.most = max(c.most, len(p))
	if len(c.sizes) > 0 {
		p = p[:min(len(p), 1+int(c.sizes[c.next%len(c.sizes)]))]
		c.next++
	}
	return c.script.Read(p)
}

// recordStream turns a fuzzer's bytes into sealed records, four bytes each: what it is, its
// size, its filling. A byte of 4 or more ends them, and the rest follows as it is.
func recordStream(ops []byte) []byte {
	ref := sealer()
	var out []byte
	for len(ops) >= 4 && ops[0] < 4 && ref.count < 64 {
		size := int(binary.BigEndian.Uint16(ops[1:])) % (maxBody + 1)
		body := bytes.Repeat(ops[3:4], size)
		switch ops[0] {
		case kindLast, kindPart, kindFin:
			out = append(out, ref.seal(ops[0], body)...)
		default: // a message, so that there is something to decode
			out = append(out, ref.seal(kindLast, ping(uint64(size)))...)
		}
		ops = ops[4:]
	}
	return append(out, ops...)
}

func FuzzRecordReader(f *testing.F) {
	f.Add([]byte{3, 0, 1, 0, 3, 0, 2, 0, 2, 0, 0, 0}, []byte{0})
	f.Add([]byte{1, 0, 9, 7, 0, 0, 9, 7, 3, 0, 1, 0, 9, 1, 16, 0, 0}, []byte{1, 0, 200})
	f.Add(append(bytes.Repeat([]byte{1, 0xff, 0xec, 0}, 20), 0, 0, 0, 0), []byte{255, 3})
	f.Add(append([]byte{3, 0, 1, 0}, bytes.Repeat([]byte{0xff}, 40)...), []byte{0, 30})
	f.Fuzz(func(t *testing.T, ops, sizes []byte) {
		stream := recordStream(ops)
		read := func(sizes []byte) (result string) {
			s := &chunked{script: newScript(stream), sizes: sizes}
			c := newConn(s, nil, nil, newRecordCipher([32]byte(fixed("records", 32))))
			for {
				b, err := c.recvBytes()
				if len(b) > wire.MaxMessage {
					t.Fatalf("a message of %d bytes", len(b))
				}
				if err != nil {
					if s.most > 0xffff {
						t.Fatalf("asked for %d bytes at once", s.most)
					}
					return result + err.Error()
				}
				result += fmt.Sprintf("%d %x\n", len(b), digest(b))
			}
		}
		if whole, pieces := read(nil), read(sizes); whole != pieces {
			t.Fatalf("read whole:\n%s\nread in pieces of %v:\n%s", whole, sizes, pieces)
		}
	})
}

func FuzzRecordPlaintext(f *testing.F) {
	f.Add(append([]byte{0, 0, 1, 'x'}, make([]byte, 252)...))
	f.Add(append([]byte{0, 0, 1, 'x', 1}, make([]byte, 251)...))
	f.Add(append([]byte{1, 0x10, 0}, make([]byte, 4096+253)...))
	f.Add(append([]byte{0, 0x10, 1}, make([]byte, 4097)...))
	f.Add([]byte{2, 0, 0})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, plain []byte) {
		kind, body, err := parsePlaintext(plain)
		if err != nil {
			return
		}
		// What is accepted is what a sender makes, and nothing else.
		again := frameRecord(append(make([]byte, 2+recordHead), body...), kind)
		if !bytes.Equal(again[2:], plain) {
			t.Fatalf("accepted %x, but a sender makes %x", plain, again[2:])
		}
	})
}

func FuzzChannelHeader(f *testing.F) {
	v := channelVectors()[0]
	whole := v.opening(3, v.OpenerRandom)
	f.Add(whole)
	f.Add(v.opening(0, v.OpenerRandom))
	f.Add(v.opening(1<<63, v.OpenerRandom))
	f.Add(whole[:1+channelHead])
	f.Add(append(bytes.Clone(whole), whole...))
	f.Add([]byte{1, 0x04, 0xd0})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := v.product(t)
		c, answer, err := arrive(t, s, b)
		genuine := bytes.HasPrefix(b, whole) || bytes.HasPrefix(b, v.opening(1<<16, v.OpenerRandom))
		if err == nil != genuine || (c != nil) != genuine {
			t.Fatalf("%x: served %t, genuine %t", b, c != nil, genuine)
		}
		if err == io.EOF {
			t.Fatal("ends with io.EOF")
		}
		if !genuine && s.Channels() != 0 {
			t.Fatal("a forgery used a number up")
		}
		if !genuine && len(answer) > 0 && answer[0] != 0 {
			t.Fatalf("a forgery was answered with %x", answer)
		}
	})
}

func FuzzResponderM1(f *testing.F) {
	tr := newTranscript(f)
	f.Add([]byte(tr.v.M1))
	f.Add(make([]byte, m1Size))
	f.Add([]byte(tr.v.M2))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, m1 []byte) {
		cfg := tr.responder
		state, m2, err := answerM1(m1, cfg.Static, cfg.Prologue, cfg.Epoch, bytes.NewReader(tr.v.ResponderEphemeral), cfg.encaps)
		if genuine := bytes.Equal(m1, tr.v.M1); (err == nil) != genuine || (state != nil) != genuine || genuine && !bytes.Equal(m2, tr.v.M2) {
			t.Fatalf("%x: %v", m1, err)
		}
	})
}

func FuzzInitiatorM2(f *testing.F) {
	tr := newTranscript(f)
	f.Add([]byte(tr.v.M2))
	f.Add(make([]byte, m2Size))
	f.Add([]byte(tr.v.M1))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, m2 []byte) {
		cfg := tr.initiator
		sent, _, err := startInitiator(cfg.Static, cfg.Peer, cfg.Prologue, bytes.NewReader(tr.v.InitiatorEphemeral), cfg.kem)
		if err != nil {
			t.Fatal(err)
		}
		state, err := sent.readM2(m2)
		if genuine := bytes.Equal(m2, tr.v.M2); (err == nil) != genuine || (state != nil) != genuine || err != nil && !errors.Is(err, errHandshake) {
			t.Fatalf("%x: %v", m2, err)
		}
		if state, err := sent.readM2(tr.v.M2); state != nil || err == nil {
			t.Fatal("a handshake read a second message twice")
		}
	})
}

func FuzzResponderM3(f *testing.F) {
	tr := newTranscript(f)
	f.Add([]byte(tr.v.M3))
	f.Add(make([]byte, m3Overhead))
	f.Add([]byte(tr.v.M1))
	f.Add(append(bytes.Clone(tr.v.M3), 0))
	f.Fuzz(func(t *testing.T, m3 []byte) {
		cfg := tr.responder
		state, _, err := answerM1(tr.v.M1, cfg.Static, cfg.Prologue, cfg.Epoch, bytes.NewReader(tr.v.ResponderEphemeral), cfg.encaps)
		if err != nil {
			t.Fatal(err)
		}
		hello, sec, err := state.readM3(m3)
		if genuine := bytes.Equal(m3, tr.v.M3); (err == nil) != genuine || (sec != nil) != genuine || genuine && !bytes.Equal(hello, tr.v.Hello) {
			t.Fatalf("%x: %v", m3, err)
		}
		if _, sec, err := state.readM3(tr.v.M3); sec != nil || err == nil {
			t.Fatal("a handshake read a third message twice")
		}
	})
}
