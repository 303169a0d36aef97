package noiseconn

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flynn/noise"
)

// Records.
//
//	on the wire   u16 length | ciphertext
//	plaintext     kind u8 | n u16 | body of n bytes | zero padding
//
// A message is any number of parts and one last record. An empty part is padding in time: it is
// reserved, and ignored.
const (
	kindLast = 0 // a whole message, or its end
	kindPart = 1 // more of the message follows
	kindFin  = 2 // nothing follows; the body is empty or a code

	recordHead = 3
	tagSize    = 16
	minRecord  = recordHead + tagSize
	maxBody    = 0xffff - minRecord
	// padBelow: bodies up to here are padded to a multiple of padTo, so that a
	// key press and a short command look alike. Larger ones are not.
	padBelow = 4 << 10
	padTo    = 256

	rekeyEvery = 4096
	maxRecords = 1 << 40
)

var errRecord = errors.New("record does not verify")

// recordCipher is one direction: a key, a counter, and the ratchet. It is the only place
// that makes a cipher from a raw key.
type recordCipher struct {
	state *noise.CipherState
	count uint64
}

var recordSuite = noise.NewCipherSuite(noise.DH25519, noise.CipherAESGCM, noise.HashSHA256)

func newRecordCipher(key [32]byte) *recordCipher {
	return &recordCipher{state: noise.UnsafeNewCipherState(recordSuite, key, 0)}
}

// next counts a record before it is used.
func (c *recordCipher) next() error {
	if c.count >= maxRecords {
		return errors.New("too many records under one key")
	}
	if c.count > 0 && c.count%rekeyEvery == 0 {
		c.state.Rekey()
	}
	c.count++
	return nil
}

// seal turns buf, which begins with two bytes for the length and then holds the
// plaintext, into the record, in place.
func (c *recordCipher) seal(buf []byte) ([]byte, error) {
	if err := c.next(); err != nil {
		return nil, err
	}
	out, err := c.state.Encrypt(buf[:2], nil, buf[2:])
	if err != nil {
		return nil, err
	}
	binary.BigEndian.PutUint16(out, uint16(len(out)-2))
	return out, nil
}

// open turns ciphertext into the plaintext of its record, in place.
func (c *recordCipher) open(ciphertext []byte) ([]byte, error) {
	if err := c.next(); err != nil {
		return nil, err
	}
	plain, err := c.state.Decrypt(ciphertext[:0], nil, ciphertext)
	if err != nil {
		return nil, errRecord
	}
	return plain, nil
}

// frameRecord writes the head of a record into buf, whose body begins at
// 2+recordHead, and pads it.
func frameRecord(buf []byte, kind byte) []byte {
	n := len(buf) - 2 - recordHead
	buf[2] = kind
	binary.BigEndian.PutUint16(buf[3:], uint16(n))
	if n <= padBelow {
		for (len(buf)-2)%padTo != 0 {
			buf = append(buf, 0)
		}
	}
	return buf
}

// parsePlaintext splits a record's plaintext. It refuses what a sender may not send,
// so that there is one encoding of everything and no room for a covert channel.
func parsePlaintext(p []byte) (kind byte, body []byte, err error) {
	if len(p) < recordHead {
		return 0, nil, fmt.Errorf("record of %d bytes", len(p))
	}
	kind = p[0]
	n := int(binary.BigEndian.Uint16(p[1:]))
	if kind > kindFin {
		return 0, nil, fmt.Errorf("record of unknown kind %d", kind)
	}
	if n > len(p)-recordHead {
		return 0, nil, errors.New("record is shorter than it says")
	}
	body = p[recordHead : recordHead+n]
	want := recordHead + n
	if n <= padBelow {
		want = (want + padTo - 1) / padTo * padTo
	}
	if len(p) != want {
		return 0, nil, errors.New("record is padded wrongly")
	}
	for _, b := range p[recordHead+n:] {
		if b != 0 {
			return 0, nil, errors.New("padding is not zero")
		}
	}
	return kind, body, nil
}
