package recordlog

import (
	"bufio"
	"encoding/binary"
	"io"
)

// reader goes through records one after the other.
type reader struct {
	in   *bufio.Reader
	left int64
	buf  []byte
}

func newReader(r io.ReaderAt, from, to int64) *reader {
	return &reader{in: bufio.NewReaderSize(io.NewSectionReader(r, from, to-from), int(min(64<<10, to-from))), left: to - from}
}

// next is the payload of the next record, valid until the next call; ok is false at the end and
// at anything that is no whole record. The length is checked before anything is allocated.
func (r *reader) next() (payload []byte, ok bool, err error) {
	var head [header]byte
	if r.left < header {
		return nil, false, nil
	}
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return nil, false, atEnd(err)
	}
	n := int64(binary.BigEndian.Uint32(head[:]))
	if n == 0 || n > MaxRecord || n > r.left-header {
		return nil, false, nil
	}
	if int64(cap(r.buf)) < header+n {
		r.buf = make([]byte, header+n)
	}
	b := r.buf[:header+n]
	copy(b, head[:])
	if _, err := io.ReadFull(r.in, b[header:]); err != nil {
		return nil, false, atEnd(err)
	}
	if checksum(b) != binary.BigEndian.Uint32(head[4:]) {
		return nil, false, nil
	}
	r.left -= header + n
	return b[header:], true, nil
}

// atEnd takes a file that is shorter than it was for one that ends there.
func atEnd(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return nil
	}
	return err
}

// recordFollows reports whether a whole record begins anywhere behind a bad one. A torn tail
// holds none, unless a payload looks like one, or is made to: after a good amount of
// checksums the answer is yes, which makes nobody lose anything.
func recordFollows(r io.ReaderAt, bad, size int64) (bool, error) {
	const step = 1 << 20
	effort := 256 << 20
	buf := make([]byte, step+header+MaxRecord)
	for from := bad + 1; from < size; from += step {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), size-from)], from)
		if err != nil && err != io.EOF {
			return false, err
		}
		b := buf[:n]
		for i := 0; i < min(step, len(b)-header); i++ {
			length := int(binary.BigEndian.Uint32(b[i:]))
			if length == 0 || length > MaxRecord || length > len(b)-i-header {
				continue
			}
			if effort -= length; effort < 0 || checksum(b[i:i+header+length]) == binary.BigEndian.Uint32(b[i+4:]) {
				return true, nil
			}
		}
	}
	return false, nil
}

// lastByte is the offset behind the last byte that is not zero, at least from.
func lastByte(r io.ReaderAt, from, to int64) (int64, error) {
	buf := make([]byte, 64<<10)
	last := from
	for at := from; at < to; {
		n, err := r.ReadAt(buf[:min(int64(len(buf)), to-at)], at)
		for i := n - 1; i >= 0; i-- {
			if buf[i] != 0 {
				last = at + int64(i) + 1
				break
			}
		}
		if at += int64(n); n == 0 {
			return last, atEnd(err)
		}
	}
	return last, nil
}
