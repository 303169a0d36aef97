// Package journal remembers, on disk, which execs were ever started and how they ended, so that
// no retry and no restart of the executor runs a command a second time.
//
// Data flow and order: what the table knows in memory it knows before it is recorded, so that a
// compaction, which writes what the table knows, loses nothing. The exec table asks Begin before it spawns, and spawns only when that has returned;
// End when a command has ended, before anybody is told; Forget when the result is no
// longer kept. Open reads all of it back. The table owns what is known in memory; this package
// owns the file, and keeps nothing of an exec but how many bytes of the file are of no use any more.
//
// The file is a recordlog of CBOR maps: first the state epoch, then records in the order of
// events. Compact writes it anew. A folder whose journal is damaged in the middle is refused: to
// go on would be to forget ids.
//
// Ages are counted in the executor's running time (Uptime), which no change of a wall clock
// moves and which is never longer than the time that has really passed. So an id is never forgotten early.
package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

// Start is what is recorded of an exec before it runs: what its id stands for, and what a list
// and an attach need to say about it later. argv and environment are not in it.
type Start struct {
	Principal string           `cbor:"2,keyasint"`
	ID        wire.ExecID      `cbor:"3,keyasint"`
	Uptime    int64            `cbor:"4,keyasint"` // milliseconds, set by Begin
	Hash      []byte           `cbor:"5,keyasint"` // of the request
	Starter   string           `cbor:"6,keyasint,omitempty"`
	Boot      string           `cbor:"7,keyasint,omitempty"` // of the machine's kernel, set by Begin
	Unix      int64            `cbor:"8,keyasint"`           // start, milliseconds
	LogEpoch  wire.ID          `cbor:"17,keyasint"`          // of its output
	Sandbox   wire.SandboxMode `cbor:"9,keyasint"`
	Roots     []string         `cbor:"10,keyasint,omitempty"`
	View      wire.View        `cbor:"11,keyasint,omitempty"`
	Limits    wire.Limits      `cbor:"12,keyasint"`
	Grace     time.Duration    `cbor:"13,keyasint,omitempty"`
	TTY       bool             `cbor:"14,keyasint,omitempty"`
	Detach    bool             `cbor:"15,keyasint,omitempty"`
	OnFull    wire.OnFull      `cbor:"16,keyasint,omitempty"`
}

// Outcome is how an exec ended. Exactly one of Status and Code counts: Code is why it could
// not be started.
type Outcome struct {
	Uptime int64            `cbor:"4,keyasint"` // milliseconds, set by End
	Unix   int64            `cbor:"8,keyasint"` // milliseconds
	Status *wire.ExitStatus `cbor:"20,keyasint,omitempty"`
	Last   uint64           `cbor:"21,keyasint,omitempty"` // number of Exit in the log
	Code   wire.Code        `cbor:"22,keyasint,omitempty"`
	Text   string           `cbor:"23,keyasint,omitempty"`
}

// Entry is all that is known of an exec.
type Entry struct {
	Start
	Outcome *Outcome // nil: it runs, or its end was not recorded
	// Forgotten: only the id is remembered, and nothing of the result.
	Forgotten bool
}

// Key is what an entry is found by.
type Key struct {
	Principal string
	ID        wire.ExecID
}

// Journal is an open journal. It is safe for concurrent use. Close it.
type Journal struct {
	path  string
	epoch wire.ID
	boot  string
	base  time.Duration // running time of earlier processes
	began time.Time

	// Recording is shared; a compaction has the file for itself.
	recording sync.RWMutex
	file      *recordlog.File

	mu      sync.Mutex
	records int // in the file
	live    int // entries that a compaction would keep
}

// Open opens the journal in a folder, which must exist, or makes one with a new state epoch. It returns
// what is known, and how many bytes of a record that a crash had torn were cut off. The error is a
// *recordlog.DamagedError, wrapped, when the file cannot be trusted.
//
// Only one process may have it open; the caller sees to that.
func Open(dir string) (j *Journal, entries map[Key]*Entry, cut int64, err error) {
	j = &Journal{path: filepath.Join(dir, "journal"), boot: bootID(), began: time.Now()}
	entries = make(map[Key]*Entry)
	if err := os.Remove(j.path + ".new"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, 0, err
	}
	switch _, err := os.Lstat(j.path); {
	case errors.Is(err, os.ErrNotExist):
		j.epoch = wire.ID(wire.NewExecID())
		return j, entries, 0, j.rewrite(nil)
	case err != nil:
		return nil, nil, 0, err
	}
	j.file, cut, err = recordlog.Open(j.path, func(_ int64, payload []byte) error { return j.replay(entries, payload) })
	if err == nil && j.epoch == (wire.ID{}) {
		j.file.Close()
		err = errors.New("it does not begin with a state epoch")
	}
	if err != nil {
		return nil, nil, 0, fmt.Errorf("journal of execs: %w; without it a command could run twice: "+
			"restore the folder, or move %s away, which makes every id of before unknown", err, dir)
	}
	j.file.MakeRoom(roomStep)
	j.live = len(entries)
	return j, entries, cut, nil
}

// Epoch is the state epoch: made with the journal, and never the same again.
func (j *Journal) Epoch() wire.ID { return j.epoch }

// Boot tells runs of the machine apart; empty where that is not known.
func (j *Journal) Boot() string { return j.boot }

// Uptime is the running time of the executor, over all its processes.
func (j *Journal) Uptime() time.Duration { return j.base + time.Since(j.began) }

// Begin records that an exec is going to be started, and returns when that is on the disk. After an
// error it must not be started. Calls at the same time share one write to the disk.
func (j *Journal) Begin(s Start) (Start, error) {
	s.Uptime, s.Boot = j.Uptime().Milliseconds(), j.boot
	b, err := encode(record{Kind: kindStart, Start: s})
	if err != nil {
		return s, err
	}
	j.recording.RLock()
	defer j.recording.RUnlock()
	if err := j.append(b, 1); err != nil {
		return s, err
	}
	if err := j.file.Sync(); err != nil {
		return s, fmt.Errorf("journal of execs: %w", err)
	}
	return s, nil
}

// End records how an exec ended. It survives the end of this process, and soon that of the machine.
func (j *Journal) End(k Key, o Outcome) (Outcome, error) {
	o.Uptime = j.Uptime().Milliseconds()
	b, err := encode(endRecord{kindEnd, k.Principal, k.ID, o})
	if err != nil {
		return o, err
	}
	j.recording.RLock()
	defer j.recording.RUnlock()
	return o, j.append(b, 0)
}

// Forget records that the result of an exec is no longer kept.
func (j *Journal) Forget(k Key) error {
	b, err := encode(endRecord{kindForget, k.Principal, k.ID, Outcome{Uptime: j.Uptime().Milliseconds()}})
	if err != nil {
		return err
	}
	j.recording.RLock()
	defer j.recording.RUnlock()
	return j.append(b, 0)
}

// Drop tells that one entry will not be among those of the next compaction.
func (j *Journal) Drop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.live--
}

// append needs the caller to hold recording.
func (j *Journal) append(b []byte, started int) error {
	if _, err := j.file.Append(b); err != nil {
		return fmt.Errorf("journal of execs: %w", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.records++
	j.live += started
	return nil
}

// Tick records the running time, so that a crash does not take it back. Call it now and then.
func (j *Journal) Tick() error {
	b, err := encode(record{Kind: kindUptime, Start: Start{Uptime: j.Uptime().Milliseconds()}})
	if err != nil {
		return err
	}
	j.recording.RLock()
	defer j.recording.RUnlock()
	return j.append(b, 0)
}

// Close records the running time, and syncs and closes the file.
func (j *Journal) Close() error {
	err := j.Tick()
	j.recording.Lock()
	defer j.recording.Unlock()
	return errors.Join(err, j.file.Sync(), j.file.Close())
}
