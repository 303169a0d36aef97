package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// WriteFrame writes one message as u16 length and bytes, in one call of w.Write. Frames stand at
// the head of a stream, before spliced bytes, and hold at most MaxHeader bytes.
func WriteFrame(w io.Writer, m Message) error {
	b, err := Append(make([]byte, 2, 128), m)
	if err != nil {
		return err
	}
	n := len(b) - 2
	if n > MaxHeader {
		return fmt.Errorf("frame of %d bytes: at most %d are allowed", n, MaxHeader)
	}
	binary.BigEndian.PutUint16(b, uint16(n))
	_, err = w.Write(b)
	return err
}

// ReadFrame reads one frame and not a byte more. The length is checked before
// anything is allocated. A stream that ends inside a frame is io.ErrUnexpectedEOF, one that ends
// before it io.EOF.
func ReadFrame(r io.Reader) (Message, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > MaxHeader {
		return nil, fmt.Errorf("frame of %d bytes: at most %d are allowed", n, MaxHeader)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return Decode(b)
}
