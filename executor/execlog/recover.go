package execlog

import (
	"errors"
	"os"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

// Repair says what Recover took out of the files: a crash of the machine may tear what was written
// last. The zero value: nothing.
type Repair struct {
	Bytes    int64 // cut off or given up, with their framing, whole files included
	Segments int   // files removed as a whole, which had nothing of this log
}

// Recover makes the log of cfg.Name, as a crash or an orderly stop left it. It has not ended: the caller calls
// End, with what it knows of the command. Every segment is cut behind its last whole record; one without a
// whole beginning, of another epoch, or that goes back is removed. What is in a pack comes before the segments;
// if it is of another epoch, it is what is left of a removed log, and given up. cfg.Files is s. Without
// files the log is empty and its epoch new.
//
// The time is bounded by the size of the files, whatever the command printed: a payload may look
// like records, so no record is looked for behind damage.
func (s *Store) Recover(cfg Config) (*Log, Repair, error) {
	var repair Repair
	cfg.Files = s
	if err := checkName(cfg.Name); err != nil {
		return nil, repair, err
	}
	l := New(cfg)
	given, err := l.recoverPacked()
	if err != nil {
		return nil, repair, err
	}
	repair.Bytes += given
	for _, n := range s.numbers(cfg.Name) {
		l.nextFile = n + 1
		seg, cut, err := l.recoverSegment(n)
		if err != nil {
			return nil, repair, err
		}
		if cut > 0 {
			repair.Bytes += cut
			s.release(cut)
		}
		if seg == nil {
			s.unlist(cfg.Name, n)
			repair.Segments++
			continue
		}
		l.join(seg)
	}
	l.first = l.last + 1
	return l, repair, nil
}

// join adds a segment that follows those read so far.
func (l *Log) join(seg *segment) {
	l.segments = append(l.segments, seg)
	l.disk += seg.size
	l.last, l.printed = seg.end().Seq, seg.end().Bytes
}

// recoverPacked reads what a pack has of the log, or says how much of it is damaged and given up.
func (l *Log) recoverPacked() (given int64, err error) {
	at, ok := l.cfg.Files.packedAt(l.cfg.Name)
	if !ok {
		return 0, nil
	}
	f, err := os.Open(at.pack.path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	p, err := readPacked(f, at.pack.path, int64(at.offset), int64(at.size))
	if _, damaged := errors.AsType[*recordlog.DamagedError](err); damaged || err == nil && p.name != l.cfg.Name {
		return int64(at.size), l.cfg.Files.unpack(l.cfg.Name)
	}
	if err != nil {
		return 0, err
	}
	l.epoch = p.epoch
	l.join(p.segment(at.pack.path, int64(at.offset), int64(at.size)))
	return 0, nil
}

// forsakePacked makes the log as if nothing of it were in a pack.
func (l *Log) forsakePacked() error {
	l.segments, l.disk, l.last, l.printed = nil, 0, 0, 0
	return l.cfg.Files.unpack(l.cfg.Name)
}

// recoverSegment reads a segment that follows those read so far, and cuts it or removes it.
func (l *Log) recoverSegment(number int) (seg *segment, cut int64, err error) {
	path := l.cfg.Files.path(l.cfg.Name, number)
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
			if ok && epoch != l.epoch && len(l.segments) == 1 && l.segments[0].number == 0 {
				if err := l.forsakePacked(); err != nil {
					return false, err
				}
			}
			if ok = ok && l.follows(epoch, after); ok {
				l.epoch = epoch
				seg = &segment{path: path, number: number, first: after.Seq + 1, last: after.Seq, before: after.Bytes, size: beginSize}
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
