package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
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
	entries map[execKey]*entry
	running int
	swept   time.Time
}

type execKey struct {
	principal string
	id        wire.ExecID
}

// entry is what is known of an id. ready is closed when one of exec and err is set; a swept
// entry has neither any more, and only remembers the request.
type entry struct {
	hash  [sha256.Size]byte
	ready chan struct{}
	exec  *execution
	err   error
	at    time.Time
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
	return &table{cfg: cfg, entries: make(map[execKey]*entry)}, nil
}

// start returns the exec of p.ID, and starts it if there is none.
func (t *table) start(ctx context.Context, principal string, p wire.ExecParams) (*execution, error) {
	hash, err := requestHash(p)
	if err != nil {
		return nil, err
	}
	key := execKey{principal, p.ID}
	t.mu.Lock()
	t.sweep()
	if e := t.entries[key]; e != nil {
		t.mu.Unlock()
		return t.repeat(ctx, e, hash)
	}
	switch {
	case t.closed:
		err = wire.Errorf(wire.CodeShutdown, "the executor is shutting down")
	case t.running >= t.cfg.MaxExecs:
		err = &wire.Error{Code: wire.CodeBusy, Text: "the executor runs as many commands as it may", RetryAfter: time.Second}
	case len(t.entries) >= maxEntries:
		err = &wire.Error{Code: wire.CodeBusy, Text: "the executor remembers as many execs as it may", RetryAfter: time.Minute}
	}
	if err != nil {
		t.mu.Unlock()
		return nil, err
	}
	e := &entry{hash: hash, ready: make(chan struct{}), at: time.Now()}
	t.entries[key] = e
	t.running++
	t.mu.Unlock()

	x, err := t.launch(ctx, principal, p)
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.exec, e.err = x, err; err != nil {
		t.running--
		if !keepsOutcome(err) {
			delete(t.entries, key)
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
func (t *table) launch(ctx context.Context, principal string, p wire.ExecParams) (*execution, error) {
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
		},
		principal: principal,
		killAfter: cmp.Or(p.KillAfter, wire.DefaultKillAfter),
		log:       newOutputLog(wire.OutputWindow, wire.OutputKeep),
		exited:    make(chan struct{}),
		done:      make(chan struct{}),
	}
	t.cfg.Log.Info("exec started", "exec", p.ID, "principal", principal, "sandbox", spec.Policy.Sandbox)
	x.begin(run, p.Timeout)
	return x, nil
}

func (t *table) watch(x *execution) {
	<-x.done
	t.mu.Lock()
	t.running--
	t.mu.Unlock()
	t.cfg.Log.Info("exec ended", "exec", x.info.ID, "principal", x.principal, "status", x.log.exitStatus().String())
}

// find is the exec of this id; a foreign one is as unknown as one that never was.
func (t *table) find(principal string, id wire.ExecID) (*execution, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep()
	e := t.entries[execKey{principal, id}]
	if e == nil || !isClosed(e.ready) {
		return nil, wire.Errorf(wire.CodeNotFound, "no exec %s", id)
	}
	return e.outcome()
}

func (t *table) list(principal string) []wire.ExecInfo {
	t.mu.Lock()
	t.sweep()
	var infos []wire.ExecInfo
	for key, e := range t.entries {
		if key.principal == principal && isClosed(e.ready) && e.exec != nil {
			infos = append(infos, e.exec.describe())
		}
	}
	t.mu.Unlock()
	slices.SortFunc(infos, func(a, b wire.ExecInfo) int { return a.Started.Compare(b.Started) })
	return infos
}

// endAll terminates the commands of one principal, when its key is gone.
func (t *table) endAll(principal string, cause wire.Cause) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, e := range t.entries {
		if key.principal == principal && isClosed(e.ready) && e.exec != nil && !isClosed(e.exec.done) {
			e.exec.terminate(cause, 0)
			e.exec.log.setFree(true)
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
	for key, e := range t.entries {
		if !isClosed(e.ready) {
			continue
		}
		if x := e.exec; x != nil {
			if !isClosed(x.done) {
				continue
			}
			x.mu.Lock()
			idle := x.controller == nil && now.Sub(x.endedAt) > t.cfg.Keep
			x.mu.Unlock()
			if idle {
				e.exec = nil
			}
		}
		if e.exec == nil && now.Sub(e.at) > tombstoneAge {
			delete(t.entries, key)
		}
	}
}

func (t *table) close() error {
	t.mu.Lock()
	t.closed = true
	entries := slices.Collect(maps.Values(t.entries))
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
