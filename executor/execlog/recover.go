package execlog

import (
	"os"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

// Repair says what Recover took out of the files: a crash of the machine may tear what was written
// last. The zero value: nothing.
type Repair struct {
	Bytes    int64 // cut off, with their framing, whole files included
	Segments int   // files removed as a whole, which had nothing of this log
}

// Recover makes the log of cfg.Name, as a crash or an orderly stop left it. It has not ended: the caller calls
// End, with what it knows of the command. Every segment is cut behind its last whole record; one without a
// whole beginning, of another epoch, or that goes back is removed. cfg.Files is s. Without
// files the log is empty and its epoch new.
//
// The time is bounded by the size of the files, whatever the command printed: a payload may look
// like records, so no record is looked for behind damage.
func (s *Store) Recover(cfg Config) (*Log, Repair, error) {
	var repair Repair
	cfg.Files = s
	numbers, err := s.take(cfg.Name)
	if err != nil {
		return nil, repair, err
	}
	l := New(cfg)
	for _, n := range numbers {
		l.nextFile = n + 1
		seg, cut, err := l.recoverSegment(s.path(cfg.Name, n))
		if err != nil {
			return nil, repair, err
		}
		if cut > 0 {
			repair.Bytes += cut
			s.release(cut)
		}
		if seg == nil {
			repair.Segments++
			continue
		}
		l.segments = append(l.segments, seg)
		l.disk += seg.size
		l.last, l.printed = seg.end().Seq, seg.end().Bytes
	}
	l.first = l.last + 1
	return l, repair, nil
}

// recoverSegment reads a segment that follows those read so far, and cuts it or removes it.
func (l *Log) recoverSegment(path string) (seg *segment, cut int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	_, err = recordlog.Scan(f, recordlog.Begin, info.Size(), func(offset int64, payload []byte) (bool, error) {
		if seg == nil {
			epoch, after, ok := decodeBegin(payload)
			if ok = ok && l.follows(epoch, after); ok {
				l.epoch = epoch
				seg = &segment{path: path, first: after.Seq + 1, last: after.Seq, before: after.Bytes, size: beginSize}
			}
			return ok, nil
		}
		c, ok := decodeChunk(payload)
		if ok = ok && c.Seq == seg.last+1; ok {
			seg.add(offset, c.Data)
		}
		return ok, nil
	})
	if err != nil {
		return nil, 0, err
	}
	if seg == nil {
		return nil, info.Size(), os.Remove(path)
	}
	if cut = info.Size() - seg.size; cut > 0 {
		err = f.Truncate(seg.size)
	}
	return seg, cut, err
}

// follows reports whether a segment that begins after a place may come next. A hole is a gap.
func (l *Log) follows(epoch wire.ID, after Position) bool {
	if len(l.segments) == 0 {
		return true
	}
	if after.Seq == l.last {
		return epoch == l.epoch && after.Bytes == l.printed
	}
	return epoch == l.epoch && after.Seq > l.last && after.Bytes >= l.printed
}
