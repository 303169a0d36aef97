package execlog

import (
	"sync"

	"github.com/postern-relay/postern/executor/recordlog"
	"github.com/postern-relay/postern/wire"
)

// DefaultMaxBytes is what the files of one log may take when Config does not say.
const DefaultMaxBytes = 256 << 20

// Config says how a log is kept.
type Config struct {
	// Window is how much unacknowledged output there may be in memory before Append waits, and Keep how
	// much of what is acknowledged stays there, bytes. A chunk counts with its overhead, so that
	// a million one-byte writes are no way around it. A log that spills uses neither.
	Window, Keep int
	// Files is where the log spills to and settles in; nil: it stays in memory.
	Files *Store
	// Name is the log's within Files: digits, a to f and hyphens.
	Name string
	// Spill writes every chunk to the files at once. It needs Files.
	Spill bool
	// OnFull says what a log that spills does at MaxBytes; zero: it drops the oldest.
	OnFull wire.OnFull
	// MaxBytes bounds the files, with their framing; zero: DefaultMaxBytes.
	MaxBytes int64
}

// Log is the output log of one exec. Its methods may be called concurrently; after Discard too.
type Log struct {
	cfg    Config
	epoch  wire.ID
	spills bool

	// writing is held while files change. What segments and disk hold changes under both locks.
	writing  sync.Mutex
	file     *recordlog.File // of the last segment; nil: the next chunk begins a new one
	nextFile int

	mu        sync.Mutex
	entries   []entry // those in memory, in order; numbers have no holes up to the newest
	first     uint64  // number of entries[0], or of the next chunk
	segments  []*segment
	disk      int64  // what the segments take
	last      uint64 // highest number given, Exit's included
	printed   uint64 // bytes ever appended
	acked     uint64
	unacked   int    // cost of the entries above acked; without spilling only
	kept      int    // cost of entries
	unsaved   uint64 // highest number that should be in a file and is not
	exit      *wire.ExitStatus
	free      bool // nobody will acknowledge: Append does not wait, the oldest goes
	settling  bool // entries are on their way into a file: nothing is trimmed
	discarded bool
	dropped   bool          // something went that its controller had not taken
	err       error         // the first failure of the disk
	room      chan struct{} // closed when Append may go on; nil when nobody waits
	more      chan struct{} // closed when last rises; nil when nobody waits
}

// entry is a chunk in memory.
type entry struct {
	before uint64 // bytes of output before it
	data   []byte
	stream wire.OutputStream
}

// New makes an empty log. No file of its name may exist in cfg.Files.
func New(cfg Config) *Log { return newLog(cfg, wire.ID(wire.NewExecID())) }

func newLog(cfg Config, epoch wire.ID) *Log {
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = DefaultMaxBytes
	}
	return &Log{cfg: cfg, epoch: epoch, spills: cfg.Spill && cfg.Files != nil, nextFile: 1, first: 1}
}

// Epoch names the log. Numbers of logs with different epochs have nothing to do with each other.
func (l *Log) Epoch() wire.ID { return l.epoch }

// Append adds one chunk of at most wire.MaxChunk bytes, which the log owns from then on. It blocks while
// the log is full and nobody may drop from it. After Discard it only counts.
func (l *Log) Append(stream wire.OutputStream, data []byte) {
	if l.spills {
		l.spill(stream, data)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.unacked >= l.cfg.Window && !l.free && !l.discarded {
		room := waitFor(&l.room)
		l.mu.Unlock()
		<-room
		l.mu.Lock()
	}
	l.unacked += cost(data)
	l.add(stream, data)
	l.trim()
}

// add makes a chunk visible. Called with mu held.
func (l *Log) add(stream wire.OutputStream, data []byte) {
	l.last++
	l.entries = append(l.entries, entry{before: l.printed, data: data, stream: stream})
	l.kept += cost(data)
	l.printed += uint64(len(data))
	if l.discarded {
		l.drain()
	}
	wakeAll(&l.more)
}

// End adds Exit after all output: call it once, when the last Append has returned.
func (l *Log) End(status wire.ExitStatus) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last++
	l.exit = &status
	wakeAll(&l.more)
}

// Lose says that numbers up to seq were given: what is not here of them is a gap whose bytes, as far as they
// are not known, count zero. Call it after Recover and before End.
func (l *Log) Lose(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seq > l.last {
		l.last, l.first = seq, seq+1
	}
}

// Ack says that the controller's consumer has everything up to seq. It never goes back.
func (l *Log) Ack(seq uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	seq = min(seq, l.last)
	if seq <= l.acked {
		return
	}
	if l.spills {
		l.acked = seq
		wakeAll(&l.room) // a segment may go now
		return
	}
	for n := max(l.acked+1, l.first); n <= seq; n++ {
		if e := l.at(n); e != nil {
			l.unacked -= cost(e.data)
		}
	}
	l.acked = seq
	l.trim()
	if l.unacked < l.cfg.Window {
		wakeAll(&l.room)
	}
}

// SetFree lets Append go on without acknowledgements (true), or wait for them again.
func (l *Log) SetFree(free bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = free
	if !l.spills {
		l.trim()
	}
	if free {
		wakeAll(&l.room)
	}
}

// at is the chunk of this number in memory, nil if it is not there or is Exit.
func (l *Log) at(seq uint64) *entry {
	if seq < l.first || seq-l.first >= uint64(len(l.entries)) {
		return nil
	}
	return &l.entries[seq-l.first]
}

// trim drops from the front of a log in memory what need not be kept.
func (l *Log) trim() {
	if l.settling {
		return
	}
	n := 0
	for n < len(l.entries) {
		size, seq := cost(l.entries[n].data), l.first+uint64(n)
		unacked := seq > l.acked
		if l.kept-size < l.cfg.Keep || unacked && (!l.free || l.kept <= l.cfg.Window) {
			break
		}
		if unacked {
			l.unacked -= size
			l.acked = seq // gone: nothing is left to acknowledge
		}
		l.kept -= size
		n++
	}
	l.forget(n)
}

// forget takes the n oldest chunks out of memory.
func (l *Log) forget(n int) {
	clear(l.entries[:n])
	l.entries = l.entries[n:]
	l.first += uint64(n)
	if len(l.entries) == 0 {
		l.entries = nil
	}
}

// drain gives all memory back.
func (l *Log) drain() {
	l.forget(len(l.entries))
	l.kept, l.unacked = 0, 0
}

// Wake is closed when a number above after exists.
func (l *Log) Wake(after uint64) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.last > after || l.exit != nil {
		return closedChan
	}
	return waitFor(&l.more)
}

// Dropped reports whether output went to make room before its controller had taken it.
func (l *Log) Dropped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// AckedSeq is the highest acknowledged number. What was dropped counts as acknowledged.
func (l *Log) AckedSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.acked
}

// LastSeq is the highest number given, Exit's included.
func (l *Log) LastSeq() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// ExitStatus is nil until End. Do not alter it.
func (l *Log) ExitStatus() *wire.ExitStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exit
}

// Err is the first failure of the disk, nil if there was none. The log goes on without it, as the package
// comment says.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// note remembers the first failure.
func (l *Log) note(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err == nil {
		l.err = err
	}
}

// cost is what a chunk takes in memory, with its entry and the allocator's rounding.
func cost(data []byte) int { return len(data) + 64 }

var closedChan = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// waitFor makes the channel that wakeAll closes.
func waitFor(c *chan struct{}) <-chan struct{} {
	if *c == nil {
		*c = make(chan struct{})
	}
	return *c
}

func wakeAll(c *chan struct{}) {
	if *c != nil {
		close(*c)
		*c = nil
	}
}
