package executor

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// LocalConfig says how commands run on this machine.
type LocalConfig struct {
	// Runner starts the processes. Required; NewSandboxRunner makes the product's.
	Runner Runner
	// Workspaces are the folders commands may work in, absolute. The first is where a
	// command without a folder of its own starts.
	Workspaces []string
	// Max is the widest mode a client may ask for. Zero: SandboxWorkspaceWrite.
	Max wire.SandboxMode
	// View is the widest view a client may ask for. Zero: ViewFull.
	View wire.View
	// Network is the most a client may ask for. Zero: nothing but the command's own loopback.
	Network Network
	// Limits are the owner's: a client can ask for tighter ones. Zero fields set none.
	Limits wire.Limits
	// MaxGrace bounds how long a detached command lives on. Zero: wire.MaxGrace.
	MaxGrace time.Duration
	// MaxAbsence bounds how long a command that was not started detached lives without a
	// controller, whether or not one could have come back. Zero: 24 hours.
	MaxAbsence time.Duration
	// Environ is what EnvInherit chooses from. Nil: nothing.
	Environ []string
	// MaxExecs bounds the commands that run at once. Zero: 1024. It is less where this process may not open as many files as they take.
	MaxExecs int
	// MaxRemembered bounds the ids that are remembered, those of running commands included: at
	// the limit new ones are refused. Zero: 1 million.
	MaxRemembered int

	// State is a folder for what must outlive this process: ids, outcomes, output. It must be the
	// caller's alone. Empty: nothing outlives it.
	State string
	// Keep is how long the result of an ended command can be fetched, in the running time of the
	// executor. Zero: 24 hours, 10 minutes without State.
	Keep time.Duration
	// LogBytes bounds the files of one exec, zero: 256 MiB. StoreBytes bounds all files together,
	// zero: 8 GiB.
	LogBytes, StoreBytes int64
	// Log gets starts and ends, never words or environment. Nil: nothing.
	Log *slog.Logger
	// Metrics count commands. Nil: nothing is counted.
	Metrics *Metrics
}

func (c *LocalConfig) setDefaults() {
	if c.Max == 0 {
		c.Max = wire.SandboxWorkspaceWrite
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	keep := 24 * time.Hour
	if c.State == "" {
		keep = 10 * time.Minute
	}
	c.View = cmp.Or(c.View, wire.ViewFull)
	c.MaxGrace = cmp.Or(c.MaxGrace, wire.MaxGrace)
	c.MaxAbsence = cmp.Or(c.MaxAbsence, wire.MaxGrace)
	c.MaxExecs = cmp.Or(c.MaxExecs, 1024)
	if most := mostExecs(openFiles()); most < c.MaxExecs {
		c.Log.Warn("fewer commands at once than configured, since this process may open too few files: raise its limit (ulimit -Hn, LimitNOFILE)",
			"commands", most, "configured", c.MaxExecs, "files", openFiles())
		c.MaxExecs = most
	}
	c.MaxRemembered = cmp.Or(c.MaxRemembered, 1_000_000)
	c.Keep = cmp.Or(c.Keep, keep)
	c.LogBytes = cmp.Or(c.LogBytes, 256<<20)
	c.StoreBytes = cmp.Or(c.StoreBytes, 8<<30)
}

// Local runs commands on this machine for one principal: it is the ExecBackend behind every
// session of the executor, and can be used without any network. It is safe for
// concurrent use.
type Local struct {
	table  *table
	caller Caller
}

// Caller is on whose behalf a Local acts. The zero value sees nothing of anybody's, and starts nothing.
type Caller struct {
	// Principal owns what the caller starts, and is what an id means something for.
	Principal string
	// Key is the client key that the caller has proven: when it is removed, what it started ends. Without one the caller is
	// this process itself, which Rights do not bind.
	Key string
	// ViewAll lets the caller see the execs of all principals, ControlAll also act on them.
	ViewAll, ControlAll bool
	// Rights bound what a caller with a key may start, and what it may take the control of. Zero: nothing.
	Rights keys.Rights
}

var _ wire.ExecBackend = (*Local)(nil)

// NewLocal is a backend whose execs belong to the principal "local". Close it.
func NewLocal(cfg LocalConfig) (*Local, error) {
	t, err := newTable(cfg)
	if err != nil {
		return nil, err
	}
	return &Local{table: t, caller: Caller{Principal: "local"}}, nil
}

// As is the same machine for another caller.
func (l *Local) As(c Caller) *Local { return &Local{table: l.table, caller: c} }

// Close ends every command, of all principals, and waits until nothing of them is left.
func (l *Local) Close() error { return l.table.close() }

// Count is how many commands run, and how many ids are remembered, those of running commands included.
func (l *Local) Count() (running, remembered int) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	return l.table.running, l.table.count
}

// Epoch is the state epoch: made with the state folder, or with this process where there is none.
func (l *Local) Epoch() wire.ID { return l.table.epoch }

// Start implements wire.ExecBackend.
func (l *Local) Start(ctx context.Context, p wire.ExecParams) (wire.ExecProcess, error) {
	h, err := l.start(ctx, p, claim{}, l.Epoch())
	if err != nil {
		return nil, err
	}
	return h, nil
}

// Attach implements wire.ExecBackend.
func (l *Local) Attach(_ context.Context, id wire.ExecID, o wire.AttachOptions) (wire.ExecProcess, error) {
	h, err := l.attach(wire.ExecRef{ID: id, Owner: o.Owner}, o.Control, claim{})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// List implements wire.ExecBackend.
func (l *Local) List(context.Context) ([]wire.ExecInfo, error) { return l.table.list(l.caller), nil }

// Signal implements wire.ExecBackend.
func (l *Local) Signal(_ context.Context, ref wire.ExecRef, s wire.Signal) error {
	return l.act(ref, func(x *execution) error { return x.signal(s) })
}

// Terminate implements wire.ExecBackend.
func (l *Local) Terminate(_ context.Context, ref wire.ExecRef, grace time.Duration) error {
	return l.act(ref, func(x *execution) error {
		return x.act(func() error { return x.terminate(wire.CauseTerminated, grace) })
	})
}

// act does something to an exec without a handle on it.
func (l *Local) act(ref wire.ExecRef, do func(*execution) error) error {
	x, err := l.table.find(l.caller, ref, toAct)
	if err != nil {
		return err
	}
	defer l.table.leave(x)
	return do(x)
}

// Remove implements wire.ExecBackend.
func (l *Local) Remove(ctx context.Context, ref wire.ExecRef) error {
	return l.table.remove(ctx, l.caller, ref)
}

// endOwn ends what the caller's key has started.
func (l *Local) endOwn(cause wire.Cause) {
	l.table.endUnauthorized(func(key string) bool { return key != l.caller.Key }, cause)
}

// claim tells apart the attempts of one client process; the zero value is a fresh one.
type claim struct {
	instance   wire.ID
	attempt    uint64
	generation uint64 // of the control that it had before; zero: it takes over from anybody
}

func (l *Local) start(ctx context.Context, p wire.ExecParams, c claim, epoch wire.ID) (*LocalProcess, error) {
	p, err := p.Normalize()
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	x, err := l.table.start(ctx, l.caller, p, epoch)
	if err != nil {
		return nil, err
	}
	return l.handle(x, true, c)
}

func (l *Local) attach(ref wire.ExecRef, control bool, c claim) (*LocalProcess, error) {
	why := toWatch
	if control {
		why = toHold
	}
	x, err := l.table.find(l.caller, ref, why)
	if err != nil {
		return nil, err
	}
	return l.handle(x, control, c)
}

// handle is a new handle on x, of which the caller is a user; the handle takes that over. A fresh
// claim is one of an instance of its own.
func (l *Local) handle(x *execution, control bool, c claim) (*LocalProcess, error) {
	if c == (claim{}) {
		c = claim{instance: wire.ID(wire.NewExecID()), attempt: 1}
	}
	p := &LocalProcess{x: x, table: l.table, control: control, gone: make(chan struct{})}
	if control {
		if err := x.claim(p, c); err != nil {
			l.table.leave(x)
			return nil, err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.handles[p] = struct{}{}
	return p, nil
}
