package execlog

import (
	"errors"
	"fmt"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

var (
	errNotEnded = errors.New("output log: settled before its end")
	errNoRoom   = errors.New("output log: no room in its files; raise the quota or remove old results")
)

// Settle is called after End: what is kept goes into the files, as much of the newest as there is
// room for, and the memory is given back. Reads go on as before. An error says that the disk
// failed, or that there was no room. What does not go into the files and is not acknowledged either
// stays in memory while somebody may still come for it (see SetFree); then a later Settle tries again.
// Without a Store it does nothing.
func (l *Log) Settle() error {
	if l.cfg.Files == nil {
		return nil
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	after, unsaved, err := l.beginSettling()
	if err != nil {
		return err
	}
	if l.settleInPack() {
		unsaved = 0
	} else {
		err = l.settleInSegments(after)
	}
	l.closeFile()
	end, released := l.endSettling(unsaved, err != nil)
	switch {
	case !released && err == nil:
		return errNoRoom
	case released:
		err = errors.Join(err, l.markEnd(end))
	}
	return err
}

// beginSettling says after which chunk those begin that have to be written, and up to which number there
// are some that will not be.
func (l *Log) beginSettling() (after Position, unsaved uint64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.exit == nil && !l.discarded {
		return after, 0, errNotEnded
	}
	l.settling = true
	saved := l.savedSeq()
	if l.unsaved <= saved {
		unsaved = l.unsaved
	}
	n := len(l.entries)
	if saved > 0 {
		n = min(n, int(l.chunks()-saved)) // the others are in a file
	} else if fit := l.fitting(); fit < n {
		n, unsaved = fit, l.chunks()-uint64(fit)
	}
	after = Position{l.chunks() - uint64(n), l.printed}
	if n > 0 {
		after.Bytes = l.entries[len(l.entries)-n].before
	}
	return after, unsaved, nil
}

// settleInSegments writes the chunks after a place.
func (l *Log) settleInSegments(after Position) error {
	for {
		stream, data, ok := l.chunkAfter(after.Seq)
		if !ok {
			return nil
		}
		if !l.save(after, stream, data, true) {
			return errors.Join(errNoRoom, l.Err())
		}
		after = Position{after.Seq + 1, after.Bytes + uint64(len(data))}
	}
}

// settleInPack writes what is in memory into a pack, if that is all there is of the log, and little. It
// reports false when it needs files of its own.
func (l *Log) settleInPack() bool {
	record := l.small()
	if record == nil {
		return false
	}
	at, err := l.cfg.Files.pack(l.cfg.Name, record)
	if err != nil {
		return false // what is wrong is no less so with files of its own: then it is said
	}
	p, _ := decodePacked(record)
	l.list(p.segment(at.pack.path, int64(at.offset), int64(at.size)))
	return true
}

// small is the log as a record for a pack, nil if that is not possible.
func (l *Log) small() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.discarded || len(l.segments) > 0 || l.chunks() == 0 {
		return nil
	}
	if packedSize(l.cfg.Name, l.entries) > min(maxPacked, l.cfg.MaxBytes, l.cfg.Files.packSize-recordlog.Begin) {
		return nil
	}
	return encodePacked(l.cfg.Name, l.epoch, l.beginAfter(0), l.entries)
}

// fitting is how many of the newest chunks in memory there is room for.
func (l *Log) fitting() (n int) {
	room := min(l.cfg.MaxBytes, l.cfg.Files.left()) - beginSize
	for ; n < len(l.entries); n++ {
		if room -= chunkSize(l.entries[len(l.entries)-1-n].data); room < 0 {
			break
		}
	}
	return n
}

// chunks is how many chunks there were. Called with mu held.
func (l *Log) chunks() uint64 {
	if l.exit != nil {
		return l.last - 1
	}
	return l.last
}

// savedSeq is how far the files go.
func (l *Log) savedSeq() uint64 {
	if len(l.segments) == 0 {
		return 0
	}
	return l.segments[len(l.segments)-1].last
}

func (l *Log) chunkAfter(seq uint64) (stream wire.OutputStream, data []byte, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.at(seq + 1); e != nil {
		return e.stream, e.data, true
	}
	return 0, nil, false
}

// endSettling gives the memory back, unless that would lose what somebody may come for.
func (l *Log) endSettling(unsaved uint64, failed bool) (end Position, released bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settling = false
	if l.unsaved = unsaved; failed {
		l.unsaved = l.chunks()
	}
	mayLose := l.free || l.spills && l.cfg.OnFull != wire.OnFullBlock
	if l.unsaved > l.acked && !mayLose {
		return end, false
	}
	l.drain()
	return Position{l.chunks(), l.printed}, true
}

// markEnd writes a segment without chunks where the files do not say how far the log went. No files
// at all say that nothing was ever printed.
func (l *Log) markEnd(end Position) error {
	if end.Seq == 0 || l.isDiscarded() || len(l.segments) > 0 && l.savedSeq() == end.Seq {
		return nil
	}
	for !l.reserve(beginSize, true) {
		if !l.dropOldest(true) {
			return errNoRoom
		}
	}
	f, s, err := l.cfg.Files.begin(l.cfg.Name, l.nextFile, l.epoch, end)
	if err != nil {
		l.cfg.Files.unreserve(beginSize)
		l.note(err)
		return fmt.Errorf("output log: its end is not in its files: %w", err)
	}
	l.nextFile++
	l.file = f
	l.list(s)
	l.closeFile()
	return nil
}

func (l *Log) isDiscarded() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.discarded
}

// Discard removes the files and gives their room and the memory back. Who reads gets a gap; an Append that
// waits returns. It may be called more than once.
func (l *Log) Discard() {
	l.mu.Lock()
	l.discarded = true
	l.drain()
	wakeAll(&l.room)
	l.mu.Unlock()
	if l.cfg.Files == nil {
		return
	}
	l.writing.Lock()
	defer l.writing.Unlock()
	l.closeFile()
	for l.dropOldest(true) {
	}
}
