package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// table has every exec of this machine. An id is started once per principal: whoever
// repeats a Start gets what the first one got. Ended execs stay for a while, and
// their ids for longer, so that no retry runs a command a second time.
type table struct {
	cfg LocalConfig

	mu      sync.Mutex
	closed  bool
	entries map[wire.ExecID][]*entry // mostly one each: an id means something for its principal only
	count   int
	running int
	swept   time.Time
}

// entry is what is known of an id. ready is closed when one of exec and err is set; a swept
// entry has neither any more, and only remembers the request.
type entry struct {
	principal string
	hash      [sha256.Size]byte
	ready     chan struct{}
	exec      *execution
	err       error
	at        time.Time
}

// Times and counts after which the table forgets.
const (
	tombstoneAge = 24 * time.Hour
	maxEntries   = 100_000
	sweepEvery   = time.Second
	maxExecs     = 1024
	keepResults  = 10 * time.Minute
)

func newTable(cfg LocalConfig) (*table, error) {
	if cfg.Runner == nil {
		return nil, errors.New("executor: no runner")
	}
	if cfg.Max == 0 {
		cfg.Max = wire.SandboxWorkspaceWrite
	}
	cfg.View = cmp.Or(cfg.View, wire.ViewFull)
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.MaxGrace = cmp.Or(cfg.MaxGrace, wire.MaxGrace)
	cfg.MaxExecs = cmp.Or(cfg.MaxExecs, maxExecs)
	cfg.Keep = cmp.Or(cfg.Keep, keepResults)
	return &table{cfg: cfg, entries: make(map[wire.ExecID][]*entry)}, nil
}

// start returns the exec of p.ID, and starts it if there is none.
func (t *table) start(ctx context.Context, c Caller, p wire.ExecParams) (*execution, error) {
	hash, err := requestHash(p)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.sweep()
	if e := t.entry(p.ID, c.Principal); e != nil {
		t.mu.Unlock()
		return t.repeat(ctx, e, hash)
	}
	switch {
	case t.closed:
		err = wire.Errorf(wire.CodeShutdown, "the executor is shutting down")
	case t.running >= t.cfg.MaxExecs:
		err = &wire.Error{Code: wire.CodeBusy, Text: "the executor runs as many commands as it may", RetryAfter: time.Second}
	case t.count >= maxEntries:
		err = &wire.Error{Code: wire.CodeBusy, Text: "the executor remembers as many execs as it may", RetryAfter: time.Minute}
	}
	if err != nil {
		t.mu.Unlock()
		return nil, err
	}
	e := &entry{principal: c.Principal, hash: hash, ready: make(chan struct{}), at: time.Now()}
	t.add(p.ID, e)
	t.running++
	t.mu.Unlock()

	x, err := t.launch(ctx, c, p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.exec, e.err = x, err; err != nil {
		t.running--
		if !keepsOutcome(err) {
			t.drop(p.ID, e)
		}
	} else {
		x.hash = hash
		go t.watch(x)
		if t.closed {
			x.terminate(wire.CauseTerminated, 0)
		}
	}
	close(e.ready)
	return x, err
}

// repeat is the answer to a repeated Start.
func (t *table) repeat(ctx context.Context, e *entry, hash [sha256.Size]byte) (*execution, error) {
	if e.hash != hash {
		return nil, wire.Errorf(wire.CodeConflict, "this exec id belongs to another request")
	}
	select {
	case <-e.ready:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return e.outcome()
}

// outcome is what a ready entry holds. Callers hold the table's mu.
func (e *entry) outcome() (*execution, error) {
	if e.exec == nil && e.err == nil {
		return nil, errSwept
	}
	return e.exec, e.err
}

var errSwept = wire.Errorf(wire.CodeUnknown, "the result of this exec is no longer kept; it is not run again")

// keepsOutcome: the command was tried, and a retry gets the same answer. Refusals
// are not kept, since what they depend on may change.
func keepsOutcome(err error) bool {
	c := wire.CodeOf(err)
	return c == wire.CodeNotFoundCmd || c == wire.CodeNotExec
}

// launch prepares and spawns.
func (t *table) launch(ctx context.Context, c Caller, p wire.ExecParams) (*execution, error) {
	spec, grace, err := t.cfg.prepare(p)
	if err != nil {
		return nil, err
	}
	run, err := t.cfg.Runner.Run(ctx, spec)
	if err != nil {
		return nil, err
	}
	x := &execution{
		info: wire.ExecInfo{
			ID: p.ID, Started: time.Now(), Sandbox: spec.Policy.Sandbox, Roots: spec.Policy.Roots,
			View: spec.Policy.View, Limits: spec.Policy.Limits, Grace: grace, TTY: spec.TTY != nil,
			Owner: c.Principal, Command: commandText(p.Argv), Detach: p.Detach, OnFull: p.OnFull,
		},
		starter:   c.Key,
		killAfter: cmp.Or(p.KillAfter, wire.DefaultKillAfter),
		log:       newOutputLog(wire.OutputWindow, wire.OutputKeep),
		exited:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	t.cfg.Log.Info("exec started", "exec", p.ID, "principal", c.Principal, "sandbox", spec.Policy.Sandbox)
	x.begin(run, p.Timeout)
	return x, nil
}

func (t *table) watch(x *execution) {
	<-x.done
	t.mu.Lock()
	t.running--
	t.mu.Unlock()
	t.cfg.Log.Info("exec ended", "exec", x.info.ID, "principal", x.info.Owner, "status", x.log.exitStatus().String())
}

// find is the exec that ref means for the caller, who wants to act on it (control) or only to
// see it. A foreign one is as unknown as one that never was.
func (t *table) find(c Caller, ref wire.ExecRef, control bool) (*execution, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	e, err := t.lookup(c, ref, control)
	if err != nil {
		return nil, err
	}
	return e.outcome()
}

// lookup finds a ready entry. Callers hold mu.
func (t *table) lookup(c Caller, ref wire.ExecRef, control bool) (*entry, error) {
	sees := c.ViewAll || c.ControlAll
	var found *entry
	for _, e := range t.entries[ref.ID] {
		switch {
		case !isClosed(e.ready):
		case e.principal != c.Principal && !sees:
		case ref.Owner != "" && ref.Owner != e.principal:
		case found != nil:
			return nil, wire.Errorf(wire.CodeConflict, "several principals have an exec %s: say whose", ref.ID)
		default:
			found = e
		}
	}
	switch {
	case found == nil:
		return nil, wire.Errorf(wire.CodeNotFound, "no exec %s", ref.ID)
	case control && found.principal != c.Principal && !c.ControlAll:
		return nil, wire.Errorf(wire.CodePolicy, "exec %s is another principal's: you may only watch it", ref.ID)
	}
	return found, nil
}

// entry is what the principal has under this id. Callers hold mu.
func (t *table) entry(id wire.ExecID, principal string) *entry {
	for _, e := range t.entries[id] {
		if e.principal == principal {
			return e
		}
	}
	return nil
}

// add and drop keep the count. Callers hold mu.
func (t *table) add(id wire.ExecID, e *entry) {
	t.entries[id] = append(t.entries[id], e)
	t.count++
}

func (t *table) drop(id wire.ExecID, e *entry) {
	t.count--
	left := slices.DeleteFunc(t.entries[id], func(other *entry) bool { return other == e })
	if len(left) == 0 {
		delete(t.entries, id)
	} else {
		t.entries[id] = left
	}
}

func (t *table) list(c Caller) []wire.ExecInfo {
	t.mu.Lock()
	t.sweep()
	var infos []wire.ExecInfo
	for e := range t.each() {
		if (e.principal == c.Principal || c.ViewAll || c.ControlAll) && e.exec != nil {
			infos = append(infos, e.exec.describe())
		}
	}
	t.mu.Unlock()
	slices.SortFunc(infos, func(a, b wire.ExecInfo) int { return a.Started.Compare(b.Started) })
	return infos
}

// each yields the ready entries. Callers hold mu.
func (t *table) each() iter.Seq2[*entry, wire.ExecID] {
	return func(yield func(*entry, wire.ExecID) bool) {
		for id, entries := range t.entries {
			for _, e := range entries {
				if isClosed(e.ready) && !yield(e, id) {
					return
				}
			}
		}
	}
}

// remove forgets the result of an exec that has ended.
func (t *table) remove(c Caller, ref wire.ExecRef) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e, err := t.lookup(c, ref, true)
	switch {
	case err != nil:
		return err
	case e.exec == nil: // it never ran, or is removed already
	case !isClosed(e.exec.done):
		return wire.Errorf(wire.CodeBusy, "exec %s is running: end it first", ref.ID)
	default:
		e.exec.forget()
		e.exec = nil
	}
	return nil
}

// endAll terminates what a key started, when that key is gone.
func (t *table) endAll(key string, cause wire.Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for e := range t.each() {
		if x := e.exec; x != nil && x.starter == key && !isClosed(x.done) {
			x.terminate(cause, 0)
			x.log.setFree(true)
		}
	}
}

// sweep forgets results after Keep, and ids after tombstoneAge. Callers hold mu.
func (t *table) sweep() {
	now := time.Now()
	if now.Sub(t.swept) < sweepEvery {
		return
	}
	t.swept = now
	for e, id := range t.each() {
		if x := e.exec; x != nil {
			if !isClosed(x.done) {
				continue
			}
			x.mu.Lock()
			idle := x.controller == nil && now.Sub(x.endedAt) > t.cfg.Keep
			x.mu.Unlock()
			if idle {
				x.forget()
				e.exec = nil
			}
		}
		if e.exec == nil && now.Sub(e.at) > tombstoneAge {
			t.drop(id, e)
		}
	}
}

func (t *table) close() error {
	t.mu.Lock()
	t.closed = true
	entries := slices.Concat(slices.Collect(maps.Values(t.entries))...)
	t.mu.Unlock()
	var all []*execution
	for _, e := range entries {
		<-e.ready
		t.mu.Lock()
		x := e.exec
		t.mu.Unlock()
		if x != nil && !isClosed(x.done) {
			x.terminate(wire.CauseTerminated, 0)
			x.log.setFree(true)
			all = append(all, x)
		}
	}
	for _, x := range all {
		<-x.done
	}
	return nil
}

// requestHash is what makes two Starts the same request.
func requestHash(p wire.ExecParams) (h [sha256.Size]byte, err error) {
	m := wire.NewStart(p)
	m.Instance, m.Attempt = wire.ID{1}, 1
	b, err := wire.Encode(m)
	if err != nil {
		return h, wire.Errorf(wire.CodeBadRequest, "%v", err)
	}
	if len(b) > wire.MaxStart {
		return h, wire.Errorf(wire.CodeBadRequest, "the request is %d bytes: at most %d are allowed", len(b), wire.MaxStart)
	}
	return sha256.Sum256(b), nil
}
