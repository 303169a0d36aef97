package execlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"sort"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

const (
	frame       = 8 // what package recordlog puts before a payload
	beginRecord = 1 + 16 + 8 + 8
	chunkHeader = 1 + 8
	// beginSize is what a segment takes before its first chunk.
	beginSize = recordlog.Begin + frame + beginRecord
	// markEvery is how far apart the places are that a segment remembers, bytes.
	markEvery = 64 << 10
)

// chunkSize is what a chunk takes in a segment.
func chunkSize(data []byte) int64 { return frame + chunkHeader + int64(len(data)) }

// segment is one file of a log, or all of it in a pack.
type segment struct {
	path   string
	number int    // in the name of the file; zero: it is in a pack
	first  uint64 // number of its first chunk
	last   uint64 // of its last one; first-1 when it has none
	before uint64 // bytes of output before it
	bytes  uint64 // bytes of output in it
	size   int64  // what it takes on the disk
	marks  []mark // some of its chunks, in order, the first one included
}

// mark is where a chunk begins.
type mark struct {
	offset      int64
	seq, before uint64
}

// add counts a chunk that stands at an offset.
func (s *segment) add(offset int64, data []byte) {
	s.last++
	if len(s.marks) == 0 || offset-s.marks[len(s.marks)-1].offset >= markEvery {
		s.marks = append(s.marks, mark{offset, s.last, s.before + s.bytes})
	}
	s.bytes += uint64(len(data))
	s.size += chunkSize(data)
}

// end is the place behind the last chunk.
func (s *segment) end() Position { return Position{s.last, s.before + s.bytes} }

// piece is where to look for a chunk that the segment has. It stays true while the segment grows.
func (s *segment) piece(seq uint64) *piece {
	i := sort.Search(len(s.marks), func(i int) bool { return s.marks[i].seq > seq })
	p := &piece{path: s.path, mark: s.marks[i-1], to: s.size}
	if s.number == 0 {
		p.packed = true
		p.to += p.offset
	}
	return p
}

// piece is a part of a segment.
type piece struct {
	mark
	path   string
	to     int64
	packed bool
}

// read reads chunks from seq on, as many as left allows, and returns where they end. Without an error
// there is one at least.
func (p *piece) read(seq uint64, left *budget) (chunks []wire.Chunk, end Position, err error) {
	f, err := os.Open(p.path)
	if err != nil {
		return nil, end, err
	}
	defer f.Close()
	end = Position{p.seq - 1, p.before}
	take := func(c wire.Chunk) bool {
		if c.Seq >= seq {
			if !left.take(len(c.Data)) {
				return false
			}
			c.Data = bytes.Clone(c.Data)
			chunks = append(chunks, c)
		}
		end = Position{c.Seq, end.Bytes + uint64(len(c.Data))}
		return true
	}
	if p.packed {
		err = p.eachPacked(f, take)
	} else {
		err = p.each(f, take)
	}
	if err == nil && len(chunks) == 0 && !left.full {
		err = fmt.Errorf("%s is damaged: output %d cannot be read", p.path, seq)
	}
	return chunks, end, err
}

// each shows the chunks in a file of one log.
func (p *piece) each(f *os.File, visit func(c wire.Chunk) bool) error {
	next := p.seq
	_, err := recordlog.Scan(f, p.offset, p.to, func(offset int64, payload []byte) (bool, error) {
		c, ok := decodeChunk(payload)
		if !ok || c.Seq != next {
			return false, fmt.Errorf("%s is damaged at byte %d", p.path, offset)
		}
		next++
		return visit(c), nil
	})
	return err
}

// eachPacked shows the chunks of the log in a pack.
func (p *piece) eachPacked(f *os.File, visit func(c wire.Chunk) bool) error {
	log, err := readPacked(f, p.path, p.offset, p.to-p.offset)
	if err == nil && log.after != (Position{p.seq - 1, p.before}) {
		err = fmt.Errorf("%s is damaged at byte %d", p.path, p.offset)
	}
	if err == nil {
		log.each(visit)
	}
	return err
}

// encodeBegin is the first record of a segment.
func encodeBegin(epoch wire.ID, first, before uint64) []byte {
	b := append(make([]byte, 1, beginRecord), epoch[:]...)
	b = binary.BigEndian.AppendUint64(b, first)
	return binary.BigEndian.AppendUint64(b, before)
}

func decodeBegin(b []byte) (epoch wire.ID, at Position, ok bool) {
	if len(b) != beginRecord || b[0] != 0 {
		return epoch, at, false
	}
	copy(epoch[:], b[1:])
	first := binary.BigEndian.Uint64(b[17:])
	at = Position{first - 1, binary.BigEndian.Uint64(b[25:])}
	return epoch, at, first > 0 && first <= maxCount && at.Bytes <= maxCount
}

// maxCount bounds numbers and bytes that are read from a file, so that no sum of them overflows.
const maxCount = 1 << 60

// chunkHead is what stands before the data of a chunk.
func chunkHead(stream wire.OutputStream, seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{byte(stream)}, seq)
}

// decodeChunk returns a chunk whose data is a part of b.
func decodeChunk(b []byte) (wire.Chunk, bool) {
	if len(b) < chunkHeader || b[0] == 0 {
		return wire.Chunk{}, false
	}
	return wire.Chunk{Stream: wire.OutputStream(b[0]), Seq: binary.BigEndian.Uint64(b[1:]), Data: b[chunkHeader:]}, true
}
