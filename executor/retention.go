package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/executor/journal"
	"github.com/postern-relay/postern/wire"
)

// tombstoneAge is how long an id is remembered after its exec has ended: well beyond the day for
// which clients repeat a Start.
const tombstoneAge = 7 * 24 * time.Hour

// A busy table looks for what is too old at most every sweepEvery, an idle one every sweepIdle.
const (
	sweepEvery = time.Second
	sweepIdle  = time.Minute
)

// use returns the exec of a ready entry, read from its files if need be, with its users counted up.
func (t *table) use(e *entry) (*execution, error) {
	x, err := t.enter(e)
	if err == nil && x.load != nil {
		x.loading.Do(x.load)
		switch {
		case x.loadErr != nil:
			t.unload(x)
			return nil, x.loadErr
		case x.log == nil:
			return nil, errSwept // forgotten at this moment
		}
	}
	return x, err
}

// unload lets the next user try again.
func (t *table) unload(x *execution) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.entry(x.info.ID, x.info.Owner); e != nil && e.exec == x {
		e.exec, e.users = nil, 0
	}
}

func (t *table) enter(e *entry) (*execution, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case e.refused != nil:
		return nil, e.refused
	case e.exec == nil && e.Forgotten, e.Outcome == nil && e.exec == nil:
		return nil, errSwept
	case e.exec == nil && e.failure != nil:
		return nil, e.failure
	case e.exec == nil && e.Outcome.Status == nil:
		return nil, wire.Errorf(e.Outcome.Code, "the command could not be started (%v)", e.Outcome.Code)
	case e.exec == nil:
		e.exec = t.restore(e)
	}
	e.users++
	return e.exec, nil
}

var errSwept = wire.Errorf(wire.CodeUnknown, "the result of this exec is no longer kept; it is not run again")

// leave is the opposite of use. An exec that has ended and that nobody uses is put away.
func (t *table) leave(x *execution) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entry(x.info.ID, x.info.Owner)
	if e == nil || e.exec != x {
		return // removed meanwhile
	}
	e.users--
	e.taken = e.taken || isClosed(x.done) && x.log.AckedSeq() >= x.log.LastSeq()
	t.retire(e)
}

// retire gives back the memory of an exec that is in files, and that nobody uses. Callers hold mu.
func (t *table) retire(e *entry) {
	x := e.exec
	if x == nil || e.users > 0 || t.files == nil || !isClosed(x.settled) {
		return
	}
	if x.unsaved && !e.taken && t.unsaved < maxUnsaved { // there was no room for all of it, and somebody may come
		t.unsaved++
		return
	}
	if x.unsaved {
		x.log.SetFree(true)
		if err := x.log.Settle(); err != nil {
			t.cfg.Log.Error("the output of an exec could not be kept whole", "exec", e.ID, "err", err)
		}
	}
	e.exec = nil
}

// maxUnsaved is how many ended execs may wait in memory, a window of output each, because there is no room for
// them in files. It only ever counts up: a store that is full so often needs its owner.
const maxUnsaved = 16

// putAway waits for the end of an exec, and moves what is kept of it to its files.
func (t *table) putAway(e *entry, x *execution) {
	<-x.done
	err := x.log.Settle()
	if err != nil {
		t.mu.Lock()
		room := t.files != nil && t.makeRoom()
		t.mu.Unlock()
		if room {
			err = x.log.Settle()
		}
	}
	if err != nil {
		x.unsaved = true // set before settled is closed
		t.cfg.Log.Warn("the output of an exec stays in memory until nobody reads it", "exec", e.ID, "err", err)
	}
	if err := x.log.Err(); err != nil {
		t.cfg.Log.Error("the output of an exec could not be written: a part of it is lost", "exec", e.ID, "err", err)
	}
	close(x.settled)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	t.retire(e)
}

// restore makes an exec of what is in the journal and the files. Its log is opened by whoever uses it first.
func (t *table) restore(e *entry) *execution {
	x := newExecution(e.info(), nil)
	x.exited, x.done, x.settled = closedChan, closedChan, closedChan
	x.endedAt = x.info.Ended
	status, last := *e.Outcome.Status, e.Outcome.Last
	name, epoch, boot := e.logName(), e.LogEpoch, e.Boot
	x.load = func() {
		log, repair, err := t.files.Recover(execlog.Config{
			Window: wire.OutputWindow, Keep: wire.OutputKeep, Files: t.files, Name: name, MaxBytes: t.cfg.LogBytes,
		})
		if err != nil {
			x.loadErr = wire.Errorf(wire.CodeInternal, "the output of exec %s cannot be read at the moment: %v", x.info.ID, err)
			return
		}
		if repair != (execlog.Repair{}) {
			t.cfg.Log.Warn("the output of an exec was torn by a crash and is cut off there", "exec", x.info.ID, "repair", repair)
		}
		// Numbers mean the same as before where nothing is missing at the end: after an end that was
		// recorded, or in files that this run of the machine wrote.
		whole := last == log.LastSeq()+1 || last == 0 && log.LastSeq() > 0 && boot == t.journal.Boot()
		if !whole {
			epoch = wire.ID(wire.NewExecID())
			if last > 0 {
				log.Lose(last - 1) // for whoever reads from the beginning
			}
		}
		log.SetFree(true)
		log.End(status)
		x.log, x.epoch = log, epoch
	}
	return x
}

// kept: there is a result to show.
func (e *entry) kept() bool { return !e.Forgotten && e.Outcome != nil && e.Outcome.Status != nil }

// info is what the journal knows.
func (e *entry) info() wire.ExecInfo {
	i := wire.ExecInfo{
		ID: e.ID, Owner: e.Principal, Command: e.command, Started: time.UnixMilli(e.Unix), Sandbox: e.Sandbox, Roots: e.Roots, View: e.View,
		Network: e.network, Limits: e.Limits, Grace: e.Grace, TTY: e.TTY, Detach: e.Detach, OnFull: e.OnFull,
	}
	if o := e.Outcome; o != nil {
		i.Ended, i.Exit, i.Last = time.UnixMilli(o.Unix), o.Status, o.Last
	}
	return i
}

// logName is what the files of an exec are called: its id, and of whose it is.
func (e *entry) logName() string {
	owner := sha256.Sum256([]byte(e.Principal))
	return e.ID.String() + "-" + hex.EncodeToString(owner[:16])
}

// remove forgets the result of an exec that has ended.
func (t *table) remove(ctx context.Context, c Caller, ref wire.ExecRef) error {
	for {
		t.mu.Lock()
		e, err := t.lookup(c, ref, toAct)
		if err != nil {
			t.mu.Unlock()
			return err
		}
		x := e.exec
		if x == nil || isClosed(x.settled) {
			t.forget(e)
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		if x.log.ExitStatus() == nil { // who has read Exit can remove it
			return wire.Errorf(wire.CodeBusy, "exec %s is running: end it first", ref.ID)
		}
		select {
		case <-x.settled: // its output is on its way into files
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// forget drops the result of an exec, and keeps its id. Callers hold mu.
func (t *table) forget(e *entry) {
	if e.Forgotten {
		return
	}
	e.Forgotten = true
	if t.journal != nil { // first: files without an entry are removed at the next start, an entry without files is a loss
		if err := t.journal.Forget(e.key()); err != nil {
			t.cfg.Log.Error("the removal of a result could not be recorded", "exec", e.ID, "err", err)
		}
	}
	if e.exec != nil {
		e.exec.forget()
		e.exec, e.users = nil, 0
	}
	if t.files != nil {
		if err := t.files.Remove(e.logName()); err != nil {
			t.cfg.Log.Error("the output of an exec could not be removed", "exec", e.ID, "err", err)
		}
	}
	e.Roots = nil // a tombstone needs little
}

func (t *table) sweepNow() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
}

// sweep forgets results after Keep, and ids after tombstoneAge. Callers hold mu.
func (t *table) sweep() {
	now := time.Now()
	if t.closed || now.Before(t.nextSweep) {
		return
	}
	defer func() { // a sweep of a million entries takes a second: then less often
		t.nextSweep = time.Now().Add(max(sweepEvery, 100*time.Since(now)))
	}()
	up := t.uptime()
	if t.journal != nil && up-t.ticked > time.Hour {
		t.ticked = up
		if err := t.journal.Tick(); err != nil {
			t.cfg.Log.Error("the running time could not be recorded", "err", err)
		}
	}
	for e := range t.each() {
		if e.Outcome == nil {
			continue
		}
		age := up - time.Duration(e.Outcome.Uptime)*time.Millisecond
		if e.kept() && age > t.cfg.Keep && (e.exec == nil || e.exec.idle()) {
			t.forget(e)
		}
		if !e.kept() && age > tombstoneAge {
			t.drop(e)
			if t.journal != nil {
				t.journal.Drop()
			}
		}
	}
	if t.journal != nil && t.journal.Bloated() {
		t.compact()
	}
}

func (t *table) compact() {
	err := t.journal.Compact(func(yield func(journal.Entry) bool) {
		for _, entries := range t.entries {
			for _, e := range entries {
				if len(e.Hash) > 0 && e.Unix != 0 && !yield(e.Entry) { // recorded, or about to be
					return
				}
			}
		}
	})
	if err != nil {
		t.cfg.Log.Error("the journal could not be compacted", "err", err)
	}
}

// makeRoom forgets results that their controller has taken to the end, the oldest first, until
// there is room for more output. Callers hold mu.
func (t *table) makeRoom() bool {
	if !t.files.Full() {
		return true
	}
	var taken []*entry
	for e := range t.each() {
		if e.kept() && e.taken && e.users == 0 {
			taken = append(taken, e)
		}
	}
	slices.SortFunc(taken, func(a, b *entry) int { return cmp.Compare(a.Outcome.Uptime, b.Outcome.Uptime) })
	for _, e := range taken {
		t.forget(e)
		if !t.files.Full() {
			return true
		}
	}
	return false
}
