package execlog

import (
	"sort"

	"github.com/postern-relay/postern/wire"
)

// maxChunks bounds one answer: chunks of one byte have an overhead.
const maxChunks = 4096

// Position is a place in the log: after the chunk of number Seq, which ends Bytes after the
// beginning of all output. The zero value is the beginning.
type Position struct{ Seq, Bytes uint64 }

// Read returns what follows after, about limit bytes of it and at least one chunk. A gap whose
// beginning is itself no longer kept counts all bytes ever dropped there, more rather than less than was
// missed. It waits for nothing but the disk.
func (l *Log) Read(after uint64, limit int) wire.ReadResponse {
	r, _ := l.ReadFrom(Position{Seq: after}, limit)
	return r
}

// ReadFrom is Read for who goes on from where it was: a gap counts exactly what lies in it.
func (l *Log) ReadFrom(p Position, limit int) (r wire.ReadResponse, next Position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p.Seq = min(p.Seq, l.last)
	left := budget{bytes: limit}
	for {
		if p.Seq+1 >= l.first {
			p = l.readMemory(&r, p, &left)
			break
		}
		i := l.segmentOf(p.Seq + 1)
		begin := l.beginAfter(i)
		if begin.Seq > p.Seq { // nothing has the next chunk
			if len(r.Chunks) > 0 {
				break
			}
			p = skip(&r, Position{p.Seq, max(p.Bytes, l.endBefore(i))}, begin)
			continue
		}
		s := l.segments[i]
		piece := s.piece(p.Seq + 1)
		l.mu.Unlock()
		chunks, end, err := piece.read(p.Seq+1, &left)
		l.mu.Lock()
		switch {
		case len(chunks) > 0:
			r.Chunks = append(r.Chunks, chunks...)
			p = end
		case len(r.Chunks) > 0:
			left.full = true
		case l.lists(s): // not merely dropped since
			if l.err == nil {
				l.err = err
			}
			p = skip(&r, Position{p.Seq, max(p.Bytes, s.before)}, s.end())
		}
		if left.full {
			break
		}
	}
	if l.exit != nil && p.Seq+1 == l.last {
		p.Seq = l.last
	}
	if l.exit != nil && p.Seq == l.last {
		r.Exit = l.exit
	}
	r.Next = p.Seq
	return r, p
}

// budget is how much more an answer may hold.
type budget struct {
	bytes, chunks int
	full          bool
}

// take reports whether a chunk of this size still fits. The first one always does.
func (b *budget) take(size int) bool {
	if b.chunks > 0 && size > b.bytes || b.chunks == maxChunks {
		b.full = true
		return false
	}
	b.bytes -= size
	b.chunks++
	return true
}

// readMemory adds what the memory holds after p.
func (l *Log) readMemory(r *wire.ReadResponse, p Position, left *budget) Position {
	for {
		e := l.at(p.Seq + 1)
		if e == nil || !left.take(len(e.data)) {
			return p
		}
		p = Position{p.Seq + 1, e.before + uint64(len(e.data))}
		r.Chunks = append(r.Chunks, wire.Chunk{Seq: p.Seq, Stream: e.stream, Data: e.data})
	}
}

// skip puts what lies between two places into the gap of an answer that has no chunks yet.
func skip(r *wire.ReadResponse, from, to Position) Position {
	if r.Gap == nil {
		r.Gap = &wire.Gap{From: from.Seq + 1}
	}
	r.Gap.To = to.Seq
	r.Gap.Bytes += to.Bytes - min(from.Bytes, to.Bytes)
	return to
}

// segmentOf is the index of the first segment that ends at seq or later.
func (l *Log) segmentOf(seq uint64) int {
	return sort.Search(len(l.segments), func(i int) bool { return l.segments[i].last >= seq })
}

// beginAfter is the place before the first chunk that is there in segment i, or in memory if that is
// earlier or there is no such segment.
func (l *Log) beginAfter(i int) Position {
	p := Position{l.first - 1, l.printed}
	if len(l.entries) > 0 {
		p.Bytes = l.entries[0].before
	}
	if i < len(l.segments) && l.segments[i].first <= p.Seq {
		p = Position{l.segments[i].first - 1, l.segments[i].before}
	}
	return p
}

// endBefore is how much output there was at the end of the segment before i.
func (l *Log) endBefore(i int) uint64 {
	if i == 0 {
		return 0
	}
	return l.segments[i-1].end().Bytes
}

func (l *Log) lists(s *segment) bool {
	i := l.segmentOf(s.last)
	return i < len(l.segments) && l.segments[i] == s
}

// Position is the place after seq. What was dropped before is not known chunk by chunk: for
// a place in it Bytes is too small, so that a gap after it says more than was lost rather than less.
func (l *Log) Position(seq uint64) Position {
	p, piece := l.place(seq)
	if piece != nil {
		if _, end, err := piece.read(seq, &budget{}); err == nil && end.Seq == seq {
			p = end
		}
	}
	return p
}

// place is the position after seq as far as the memory knows it, and where in the files to look for more.
func (l *Log) place(seq uint64) (Position, *piece) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.at(seq); e != nil {
		return Position{seq, e.before + uint64(len(e.data))}, nil
	}
	if seq >= l.first {
		return Position{seq, l.printed}, nil
	}
	i := l.segmentOf(seq)
	if begin := l.beginAfter(i); seq == begin.Seq {
		return begin, nil
	}
	if i == len(l.segments) || seq < l.segments[i].first {
		return Position{seq, l.endBefore(i)}, nil
	}
	s := l.segments[i]
	if seq == s.last {
		return s.end(), nil
	}
	return Position{seq, s.before}, s.piece(seq)
}
