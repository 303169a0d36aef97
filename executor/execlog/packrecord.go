package execlog

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

const (
	packedHead  = 1 + 16 + 8 + 8 + 8 // and the name
	packedChunk = 1 + 4              // what stands before the data of a chunk in a pack
)

// packed is what the record of a log in a pack says.
type packed struct {
	name   string
	epoch  wire.ID
	after  Position // the place before its first chunk
	last   uint64   // number of its last chunk; after.Seq when it has none
	chunks []byte
}

// packedSize is what a log of these chunks takes in a pack.
func packedSize(name string, entries []entry) int64 {
	size := int64(frame + packedHead + len(name))
	for _, e := range entries {
		size += packedChunk + int64(len(e.data))
	}
	return size
}

// encodePacked is the record of a log whose chunks after a place are these. The name is a valid one.
func encodePacked(name string, epoch wire.ID, after Position, entries []entry) []byte {
	b := make([]byte, 0, packedSize(name, entries)-frame)
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = append(b, epoch[:]...)
	b = binary.BigEndian.AppendUint64(b, after.Seq+1)
	b = binary.BigEndian.AppendUint64(b, after.Bytes)
	b = binary.BigEndian.AppendUint64(b, after.Seq+uint64(len(entries)))
	for _, e := range entries {
		b = append(b, byte(e.stream))
		b = binary.BigEndian.AppendUint32(b, uint32(len(e.data)))
		b = append(b, e.data...)
	}
	return b
}

// decodePacked checks all of a record. Its chunks are a part of b.
func decodePacked(b []byte) (p packed, ok bool) {
	if len(b) == 0 || len(b) < packedHead+int(b[0]) {
		return p, false
	}
	begin := 1 + int(b[0])
	name, b := string(b[1:begin]), b[begin:]
	p = packed{name: name, epoch: wire.ID(b[:16]), chunks: b[packedHead-1:]}
	first := binary.BigEndian.Uint64(b[16:])
	p.after = Position{first - 1, binary.BigEndian.Uint64(b[24:])}
	p.last = binary.BigEndian.Uint64(b[32:])
	if checkName(name) != nil || first == 0 || first > maxCount || p.after.Bytes > maxCount {
		return p, false
	}
	end, whole := p.each(func(wire.Chunk) bool { return true })
	return p, whole && end.Seq == p.last
}

// each shows the chunks in order until visit wants no more, and returns the place behind the last one that
// was shown and wanted. It reports false when what follows is no chunk.
func (p *packed) each(visit func(c wire.Chunk) bool) (end Position, ok bool) {
	end = p.after
	for b := p.chunks; len(b) > 0; {
		if len(b) < packedChunk || b[0] == 0 {
			return end, false
		}
		size := uint64(binary.BigEndian.Uint32(b[1:]))
		if size > uint64(len(b)-packedChunk) {
			return end, false
		}
		data := b[packedChunk : packedChunk+size]
		if !visit(wire.Chunk{Seq: end.Seq + 1, Stream: wire.OutputStream(b[0]), Data: data}) {
			return end, true
		}
		end = Position{end.Seq + 1, end.Bytes + size}
		b = b[packedChunk+size:]
	}
	return end, true
}

// segment is the log as if it had a file of its own, at a place in a pack.
func (p *packed) segment(path string, offset, size int64) *segment {
	end, _ := p.each(func(wire.Chunk) bool { return true })
	return &segment{
		path: path, first: p.after.Seq + 1, last: p.last, before: p.after.Bytes, bytes: end.Bytes - p.after.Bytes, size: size,
		marks: []mark{{offset, p.after.Seq + 1, p.after.Bytes}},
	}
}

// readPacked reads the record at an offset of a pack.
func readPacked(r io.ReaderAt, path string, offset, size int64) (p packed, err error) {
	ok := false
	_, err = recordlog.Scan(r, offset, offset+size, func(_ int64, payload []byte) (bool, error) {
		p, ok = decodePacked(payload)
		return false, nil
	})
	if err == nil && !ok {
		err = &recordlog.DamagedError{Path: path, Offset: offset}
	}
	if err != nil {
		err = fmt.Errorf("output log: %w", err)
	}
	return p, err
}
