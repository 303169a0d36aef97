package executor

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/executor/journal"
	"github.com/postern-relay/postern/wire"
)

// maxKillAfter bounds what a client may have between TERM and KILL.
const maxKillAfter = 10 * time.Minute

// launchTime bounds the making of a process. A start that is recorded is carried out even if
// whoever asked for it has gone: he will come back and ask again.
const launchTime = 30 * time.Second

// start returns the exec of p.ID with its users counted up, and starts it if there is none. epoch is
// the state epoch in which the client first tried.
func (t *table) start(ctx context.Context, c Caller, p wire.ExecParams, epoch wire.ID) (*execution, error) {
	hash, err := requestHash(p)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	t.sweep()
	if e := t.earlier(p.ID, c); e != nil {
		same, held := e.sameRequest(hash), c.mayHold(e.Starter)
		t.mu.Unlock()
		if same && !held {
			return nil, errNotHeld
		}
		return t.repeat(ctx, e, same)
	}
	if err := t.admit(c, p, epoch); err != nil {
		t.mu.Unlock()
		return nil, t.refuse(err)
	}
	e := &entry{ready: make(chan struct{})}
	e.Principal, e.ID, e.Starter, e.Hash = c.Principal, p.ID, c.Key, hash
	t.add(e)
	t.running++
	t.countOfKey(c.Key, 1)
	t.mu.Unlock()

	x, err := t.launch(context.WithoutCancel(ctx), c, e, p)
	t.mu.Lock()
	defer t.mu.Unlock()
	defer close(e.ready)
	if err != nil {
		t.running--
		t.countOfKey(c.Key, -1)
		if e.Outcome == nil {
			e.refused = err
			t.drop(e)
		}
		return nil, err
	}
	e.exec, e.users = x, 1
	x.setReachable(t.reachable)
	t.ending.Go(func() { t.putAway(e, x) })
	if t.closed {
		x.terminate(wire.CauseTerminated, wire.DefaultKillAfter)
	}
	return x, nil
}

// earlier is what this caller started under this id before: also under another principal, which its line
// in authorized_clients may have named at that time. Callers hold mu.
func (t *table) earlier(id wire.ExecID, c Caller) *entry {
	e := t.entry(id, c.Principal)
	for _, other := range t.entries[id] {
		if e == nil && c.Key != "" && other.Starter == c.Key {
			e = other
		}
	}
	return e
}

// admit decides whether a new exec may begin. Callers hold mu.
func (t *table) admit(c Caller, p wire.ExecParams, epoch wire.ID) error {
	switch {
	case t.closed:
		return wire.Errorf(wire.CodeShutdown, "the executor is shutting down")
	case epoch != t.epoch:
		return wire.Errorf(wire.CodeUnknown, "the executor has lost its state since this exec was first tried: it may have run, and is not run again")
	case c.rights().MaxExecs > 0 && t.runningOf[c.Key] >= c.rights().MaxExecs:
		return &wire.Error{Code: wire.CodeBusy, Text: "this key runs as many commands at once as its own limit allows (max-execs in authorized_clients)", RetryAfter: time.Second}
	case t.running >= t.cfg.MaxExecs:
		return &wire.Error{Code: wire.CodeBusy, Text: "the executor runs as many commands as it may", RetryAfter: time.Second}
	case t.count >= t.cfg.MaxRemembered:
		return &wire.Error{Code: wire.CodeBusy, Text: "the executor remembers as many execs as it may", RetryAfter: time.Minute}
	case t.files != nil && spills(p) && !t.makeRoom():
		return &wire.Error{
			Code: wire.CodeBusy, RetryAfter: time.Minute,
			Text: "the executor keeps as much output as it may: remove results that nobody needs (postern rm), or wait until they are too old",
		}
	}
	return nil
}

// countOfKey counts what a key runs. A command counts until its end is recorded, which is before anybody can
// read Exit: who has read it can start the next one. Callers hold mu.
func (t *table) countOfKey(key string, n int) {
	if t.runningOf[key] += n; t.runningOf[key] == 0 {
		delete(t.runningOf, key)
	}
}

// spills: the output goes to files from the beginning.
func spills(p wire.ExecParams) bool { return p.Detach || p.OnFull == wire.OnFullDrop }

// repeat is the answer to a repeated Start.
func (t *table) repeat(ctx context.Context, e *entry, same bool) (*execution, error) {
	if !same {
		return nil, wire.Errorf(wire.CodeConflict, "this exec id belongs to another request")
	}
	if err := e.awaitReady(ctx); err != nil {
		return nil, err
	}
	return t.use(e)
}

// launch prepares, records and spawns, in this order: what is refused leaves no record, and what is
// recorded is never tried again.
func (t *table) launch(ctx context.Context, c Caller, e *entry, p wire.ExecParams) (*execution, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, launchTime)
	defer cancel()
	r := c.rights()
	p, err := t.cfg.gate(r, p)
	if err != nil {
		return nil, t.refuse(err)
	}
	spec, grace, err := t.cfg.prepare(r, p)
	if err != nil {
		return nil, t.refuse(err)
	}
	spec.Policy.Network.owner = e.Principal // nobody shares a session with another principal
	if err := t.record(e, p, spec, grace); err != nil {
		return nil, t.refuse(err)
	}
	run, err := t.cfg.Runner.Run(ctx, spec)
	if err != nil {
		t.recordFailure(e, t.refuse(err))
		return nil, e.failure
	}
	t.cfg.Metrics.started(time.Since(began))
	x := newExecution(e.info(), run)
	x.epoch, x.most = e.LogEpoch, t.cfg.MaxAbsence
	x.killAfter = min(cmp.Or(p.KillAfter, wire.DefaultKillAfter), maxKillAfter)
	x.log = execlog.New(execlog.Config{
		Window: wire.OutputWindow, Keep: wire.OutputKeep, Files: t.files, Name: e.logName(),
		Spill: t.files != nil && spills(p), OnFull: p.OnFull, MaxBytes: t.cfg.LogBytes,
	})
	x.printedBytes = t.cfg.Metrics.printed
	x.ended = func(status wire.ExitStatus) { t.recordEnd(e, x, status) }
	t.cfg.Log.Info("exec started", "exec", p.ID, "principal", e.Principal, "sandbox", spec.Policy.Sandbox)
	x.begin(p.Timeout)
	return x, nil
}

// refuse counts a start that is not carried out.
func (t *table) refuse(err error) error {
	t.cfg.Metrics.refused(err)
	return err
}

// record makes the start durable.
func (t *table) record(e *entry, p wire.ExecParams, spec Spec, grace time.Duration) error {
	t.mu.Lock()
	e.Unix = time.Now().UnixMilli()
	e.Sandbox, e.Roots, e.View, e.Limits = spec.Policy.Sandbox, spec.Policy.Roots, spec.Policy.View, spec.Policy.Limits
	e.Grace, e.TTY, e.Detach, e.OnFull = grace, spec.TTY != nil, p.Detach, p.OnFull
	e.network = spec.Policy.Network.Wire()
	e.network.Session = p.Network.Session
	e.LogEpoch, e.command = wire.ID(wire.NewExecID()), commandText(p.Argv)
	e.Uptime = t.uptime().Milliseconds()
	start := e.Start
	t.mu.Unlock()
	if t.journal == nil {
		return nil
	}
	start, err := t.journal.Begin(start)
	if err != nil {
		return wire.Errorf(wire.CodeInternal, "the start could not be recorded, and nothing was run: %v", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e.Start = start
	return nil
}

// recordFailure keeps why a command could not be started: every retry gets the same answer.
func (t *table) recordFailure(e *entry, err error) {
	o := journal.Outcome{Code: wire.CodeInternal}
	e.failure = wire.Errorf(wire.CodeInternal, "%v", err) // cut to a size for people
	switch known, ok := errors.AsType[*wire.Error](err); {
	case ok:
		o.Code, e.failure = known.Code, wire.Errorf(known.Code, "%s", known.Text)
	case errors.Is(err, context.DeadlineExceeded): // it may have begun
		o.Code, e.failure = wire.CodeUnknown, wire.Errorf(wire.CodeUnknown, "the start took too long and was given up")
	}
	t.recordOutcome(e, o) // without the text, which may have words of the command
}

// recordEnd comes before anybody can read Exit.
func (t *table) recordEnd(e *entry, x *execution, status wire.ExitStatus) {
	t.recordOutcome(e, journal.Outcome{Status: &status, Last: x.log.LastSeq() + 1})
	t.mu.Lock()
	t.countOfKey(e.Starter, -1)
	t.mu.Unlock()
	t.cfg.Metrics.ended(status, x.log.Dropped())
	t.cfg.Log.Info("exec ended", "exec", e.ID, "principal", e.Principal, "status", status.String())
}

func (t *table) recordOutcome(e *entry, o journal.Outcome) {
	o.Unix, o.Uptime = time.Now().UnixMilli(), t.uptime().Milliseconds()
	t.mu.Lock()
	e.Outcome = &o
	t.mu.Unlock()
	if t.journal == nil {
		return
	}
	if _, err := t.journal.End(e.key(), o); err != nil {
		t.cfg.Log.Error("the end of an exec could not be recorded: after a restart its outcome is unknown", "exec", e.ID, "err", err)
	}
}

// requestHash is what makes two Starts the same request.
func requestHash(p wire.ExecParams) ([]byte, error) {
	m := wire.NewStart(p)
	m.Instance, m.Attempt = wire.ID{1}, 1
	b, err := wire.Encode(m)
	if err != nil {
		return nil, wire.Errorf(wire.CodeBadRequest, "%v", err)
	}
	if len(b) > wire.MaxStart {
		return nil, wire.Errorf(wire.CodeBadRequest, "the request is %d bytes: at most %d are allowed", len(b), wire.MaxStart)
	}
	h := sha256.Sum256(b)
	return h[:], nil
}
