package executor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/executor/journal"
	"github.com/postern-relay/postern/wire"
)

// table has every exec of this machine. An id is started once per principal: whoever
// repeats a Start gets what the first one got. Ended execs stay for a while, and
// their ids for longer, so that no retry runs a command a second time.
//
// With a state folder both outlive the process: the journal has every id and outcome, the
// files have the output. What is in memory is in the journal, and not the other way round:
// an exec that has ended and that nobody reads is only an entry.
type table struct {
	cfg     LocalConfig
	journal *journal.Journal // nil: nothing outlives the process
	files   *execlog.Store   // nil likewise
	epoch   wire.ID          // of the state folder, or of this process
	began   time.Time

	mu        sync.Mutex
	closed    bool
	entries   map[wire.ExecID][]*entry // mostly one each: an id means something for its principal only
	count     int
	running   int
	runningOf map[string]int // by the key that started them
	nextSweep time.Time
	ticked    time.Duration // when the running time was recorded last
	unsaved   int           // ended execs that were kept in memory for want of room
	reachable bool          // registered with a relay, or in no need of one
	// registrations are those of Executors with this table.
	registrations int
	ending        sync.WaitGroup // those that put away what has ended
}

// entry is what is known of an id. ready is closed when its start is decided.
type entry struct {
	journal.Entry
	ready   chan struct{}
	refused error        // the start was not even recorded; the entry is gone from the table
	failure error        // in the words of this process; set before ready is closed
	exec    *execution   // while it runs or is read; without files, as long as its result is kept
	users   int          // of exec
	command string       // for lists; only of this process's own
	network wire.Network // as told to who is in control; only of this process's own
	taken   bool         // its controller has acknowledged everything
}

func (e *entry) key() journal.Key { return journal.Key{Principal: e.Principal, ID: e.ID} }

func newTable(cfg LocalConfig) (*table, error) {
	if cfg.Runner == nil {
		return nil, errors.New("executor: no runner")
	}
	cfg.setDefaults()
	t := &table{
		cfg: cfg, epoch: wire.ID(wire.NewExecID()), began: time.Now(),
		entries: make(map[wire.ExecID][]*entry), runningOf: make(map[string]int), reachable: true,
	}
	if cfg.State == "" {
		return t, nil
	}
	if err := t.open(); err != nil {
		return nil, fmt.Errorf("executor: %w", err)
	}
	return t, nil
}

// open reads the state folder. An exec without an outcome was running when the process before this
// one died: nobody knows how it ended, and nobody will.
func (t *table) open() (err error) {
	dir := filepath.Join(t.cfg.State, "execs")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := t.checkJournal(dir); err != nil {
		return err
	}
	known, cut, err := func() (known map[journal.Key]*journal.Entry, cut int64, err error) {
		t.journal, known, cut, err = journal.Open(dir)
		return known, cut, err
	}()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			t.journal.Close()
		}
	}()
	if cut > 0 {
		t.cfg.Log.Warn("the last record of the journal was torn by a crash and is cut off", "bytes", cut)
	}
	t.epoch = t.journal.Epoch()
	if t.files, err = execlog.OpenStore(filepath.Join(dir, "output"), t.cfg.StoreBytes); err != nil {
		return err
	}
	lost := 0
	names := make(map[string]bool)
	for key, j := range known {
		e := &entry{Entry: *j, ready: closedChan}
		t.add(e)
		if e.Outcome == nil && e.Forgotten { // its end could not be recorded: it is only an id
			e.Outcome = &journal.Outcome{Uptime: e.Uptime}
		}
		if e.Outcome == nil {
			lost++
			o := journal.Outcome{Unix: time.Now().UnixMilli(), Status: &wire.ExitStatus{Cause: wire.CauseExecutorLost}}
			if o, err = t.journal.End(key, o); err != nil {
				return err
			}
			e.Outcome = &o
		}
		if e.kept() {
			names[e.logName()] = true
		}
	}
	if lost > 0 {
		t.cfg.Log.Warn("commands were running when the executor died: their outcome is unknown", "execs", lost)
	}
	return t.removeStrangers(names)
}

// checkJournal refuses a folder whose journal was taken away: without it every id of before could run again.
func (t *table) checkJournal(dir string) error {
	_, err := os.Lstat(filepath.Join(dir, "journal"))
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	output := filepath.Join(dir, "output")
	switch files, err := os.ReadDir(output); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case len(files) > 0:
		return fmt.Errorf("journal of execs: it is missing, but %s has the output of some: commands could run twice; "+
			"restore it, or move %s away, which makes every id of before unknown", output, dir)
	}
	return nil
}

// removeStrangers removes output that no entry has: of execs that were forgotten just before a crash.
func (t *table) removeStrangers(known map[string]bool) error {
	names, err := t.files.Names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !known[name] {
			if err := t.files.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// uptime is what ages are counted in.
func (t *table) uptime() time.Duration {
	if t.journal != nil {
		return t.journal.Uptime()
	}
	return time.Since(t.began)
}

// entry is what the principal has under this id. Callers hold mu.
func (t *table) entry(id wire.ExecID, principal string) *entry {
	for _, e := range t.entries[id] {
		if e.Principal == principal {
			return e
		}
	}
	return nil
}

// add and drop keep the count. Callers hold mu.
func (t *table) add(e *entry) {
	t.entries[e.ID] = append(t.entries[e.ID], e)
	t.count++
}

func (t *table) drop(e *entry) {
	t.count--
	left := slices.DeleteFunc(t.entries[e.ID], func(other *entry) bool { return other == e })
	if len(left) == 0 {
		delete(t.entries, e.ID)
	} else {
		t.entries[e.ID] = left
	}
}

// needRelay says that clients come through relays: they can while there is a registration.
func (t *table) needRelay() { t.registration(0) }

// registration counts the registrations that there are, of which an executor that replaces its key has two.
func (t *table) registration(change int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.registrations += change
	if reachable := t.registrations > 0; reachable != t.reachable {
		t.applyReachable(reachable)
	}
}

// setReachable tells every exec whether a client could come back to it: the detach grace counts
// only then, and anew each time.
func (t *table) setReachable(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.applyReachable(yes)
}

// applyReachable is setReachable for callers that hold mu.
func (t *table) applyReachable(yes bool) {
	t.reachable = yes
	for e := range t.each() {
		if e.exec != nil {
			e.exec.setReachable(yes)
		}
	}
}

// endUnauthorized terminates what keys started that are not admitted any more, and returns these.
func (t *table) endUnauthorized(admitted func(key string) bool, cause wire.Cause) (gone []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	verdict := map[string]bool{"": true} // what no key started, no removed key ends
	for e := range t.each() {
		x := e.exec
		if x == nil || isClosed(x.done) {
			continue
		}
		ok, asked := verdict[e.Starter]
		if !asked {
			ok = admitted(e.Starter)
			if verdict[e.Starter] = ok; !ok {
				gone = append(gone, e.Starter)
			}
		}
		if !ok {
			x.terminate(cause, wire.DefaultKillAfter) // what the client asked for does not count here
			x.log.SetFree(true)
		}
	}
	return gone
}

// close ends every command, waits until nothing of them is left, and puts away their results.
func (t *table) close() error {
	t.mu.Lock()
	again := t.closed
	t.closed = true
	var all []*entry
	for _, entries := range t.entries {
		all = append(all, entries...)
	}
	t.mu.Unlock()
	for _, e := range all {
		<-e.ready
		t.mu.Lock()
		x := e.exec
		t.mu.Unlock()
		if x != nil && !isClosed(x.done) {
			x.terminate(wire.CauseTerminated, wire.DefaultKillAfter)
			x.log.SetFree(true)
		}
	}
	t.ending.Wait()
	if again || t.journal == nil {
		return nil
	}
	return errors.Join(t.files.Close(), t.journal.Close())
}

// sameRequest compares hashes. Callers hold mu: the start may be being recorded.
func (e *entry) sameRequest(hash []byte) bool { return bytes.Equal(e.Hash, hash) }

// awaitReady waits until the start of e is decided.
func (e *entry) awaitReady(ctx context.Context) error {
	select {
	case <-e.ready:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
