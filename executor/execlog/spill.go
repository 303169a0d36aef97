package execlog

import (
	"errors"
	"os"
	"syscall"

	"github.com/postern-relay/postern/wire"
)

const (
	// maxTail is what a log that spills keeps in memory for those who follow it, with overhead.
	maxTail = 64 << 10
	// perLog is how many segments fill a log, and so how much goes at once when it drops.
	perLog = 16
	// maxSegments bounds the files of a log whose disk fails again and again: each
	// failure begins a new segment.
	maxSegments = 4 * perLog
)

// spill is Append for a log in files.
func (l *Log) spill(stream wire.OutputStream, data []byte) {
	for {
		room, freed := l.trySpill(stream, data)
		if room == nil {
			return
		}
		select {
		case <-room:
		case <-freed:
		}
	}
}

// trySpill adds a chunk unless it has to wait: then it says for what.
func (l *Log) trySpill(stream wire.OutputStream, data []byte) (room, freed <-chan struct{}) {
	l.writing.Lock()
	defer l.writing.Unlock()
	l.mu.Lock()
	if l.blocks() { // before it is known what there is room for, or a wake-up could be missed
		room, freed = waitFor(&l.room), l.cfg.Files.wake()
		if l.unsaved > l.acked { // it would leave the memory unread
			l.mu.Unlock()
			return room, freed
		}
	}
	after, discarded := Position{l.last, l.printed}, l.discarded
	l.mu.Unlock()
	saved := !discarded && l.save(after, stream, data, false)
	l.mu.Lock()
	defer l.mu.Unlock()
	if !saved && room != nil && l.blocks() && l.acked < l.last {
		return room, freed
	}
	l.add(stream, data)
	if !saved {
		l.unsaved = l.last
	}
	n := 0
	for ; n < len(l.entries)-1 && l.kept > maxTail; n++ {
		l.kept -= cost(l.entries[n].data)
	}
	l.forget(n)
	return nil, nil
}

// blocks reports whether Append waits rather than that anything is lost. Called with mu held.
func (l *Log) blocks() bool { return l.cfg.OnFull == wire.OnFullBlock && !l.free && !l.discarded }

// save writes a chunk into the files, and drops the oldest segments to make room where that is allowed; force
// allows it always, and makes the segment as long as it takes. It reports false when there is no room, or the
// disk fails. Called with writing held.
func (l *Log) save(after Position, stream wire.OutputStream, data []byte, force bool) bool {
	for {
		size, fresh := chunkSize(data), l.wantsSegment(after.Seq, chunkSize(data), force)
		if fresh {
			size += beginSize
		}
		if !l.reserve(size, fresh) {
			if !l.dropOldest(force) {
				return false
			}
			continue
		}
		err := l.write(after, stream, data, fresh)
		if err == nil {
			return true
		}
		l.cfg.Files.unreserve(size)
		l.note(err)
		if !fresh {
			continue // perhaps only the file is broken
		}
		if full := errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT); !full || !l.dropOldest(force) {
			return false
		}
	}
}

// wantsSegment reports whether a chunk cannot go into the last segment.
func (l *Log) wantsSegment(after uint64, size int64, force bool) bool {
	if l.file == nil {
		return true
	}
	s := l.segments[len(l.segments)-1]
	return s.last != after || !force && s.size+size > l.cfg.MaxBytes/perLog
}

func (l *Log) reserve(size int64, fresh bool) bool {
	if l.disk+size > l.cfg.MaxBytes || fresh && len(l.segments) >= maxSegments {
		return false
	}
	return l.cfg.Files.reserve(size)
}

// write appends a chunk to the last segment or to a fresh one. What fails leaves nothing behind.
func (l *Log) write(after Position, stream wire.OutputStream, data []byte, fresh bool) error {
	if !fresh {
		s := l.segments[len(l.segments)-1]
		offset, err := l.file.Append(chunkHead(stream, after.Seq+1), data)
		if err != nil {
			l.closeFile()
			return err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		s.add(offset, data)
		l.disk += chunkSize(data)
		return nil
	}
	l.closeFile()
	f, s, err := l.cfg.Files.begin(l.cfg.Name, l.nextFile, l.epoch, after)
	if err != nil {
		return err
	}
	l.nextFile++
	offset, err := f.Append(chunkHead(stream, after.Seq+1), data)
	if err != nil {
		f.Close()
		os.Remove(s.path)
		l.cfg.Files.unlist(l.cfg.Name, s.number)
		return err
	}
	l.file = f
	s.add(offset, data)
	l.list(s)
	return nil
}

// list adds a segment that is now in the files.
func (l *Log) list(s *segment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segments = append(l.segments, s)
	l.disk += s.size
}

// dropOldest removes the oldest segment if that is allowed. Called with writing held.
func (l *Log) dropOldest(force bool) bool {
	s := l.unlistOldest(force)
	if s == nil {
		return false
	}
	if len(l.segments) == 0 {
		l.closeFile()
	}
	if err := l.cfg.Files.drop(l.cfg.Name, s); err != nil {
		l.note(err)
	}
	return true
}

func (l *Log) unlistOldest(force bool) *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.segments) == 0 || l.blocks() && !force && l.segments[0].last > l.acked {
		return nil
	}
	s := l.segments[0]
	l.segments[0] = nil
	l.segments = l.segments[1:]
	l.disk -= s.size
	l.dropped = l.dropped || s.last > l.acked
	l.acked = max(l.acked, s.last) // gone: nothing is left to acknowledge
	return s
}

// closeFile ends the last segment. Called with writing held.
func (l *Log) closeFile() {
	if l.file == nil {
		return
	}
	if err := l.file.Close(); err != nil {
		l.note(err)
	}
	l.file = nil
}
