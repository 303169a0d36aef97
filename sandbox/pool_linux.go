package sandbox

import (
	"context"
	"slices"
	"sync"
	"time"
)

// The pool keeps sandboxes that are complete but for their command. Each has its
// own namespaces and its own socket, serves one command, and is never put back, so
// that commands share nothing. What it was made from is looked at again right
// before its use. Its keeper makes new ones in the background, one at a time.

const (
	defaultWarmPerPolicy = 2
	defaultWarmTotal     = 16
	defaultWarmIdle      = time.Minute

	// refillDelay keeps the work of making the next sandbox from competing with the
	// start of a command, which is over in a fraction of this.
	refillDelay = 4 * time.Millisecond
	// After a failure the next try waits, each time twice as long.
	firstRetry = 250 * time.Millisecond
	lastRetry  = time.Minute
)

type pool struct {
	launcher *Launcher
	each     int
	total    int
	idle     time.Duration
	mounts   *mountWatch
	ctx      context.Context // ends with the launcher
	stop     context.CancelFunc
	wake     chan struct{}
	keeper   sync.WaitGroup
	making   sync.Mutex // held while a sandbox is made

	mu      sync.Mutex
	shelves map[string]*shelf // by policyKey

	spare      *blank // or nil
	spareUsed  time.Time
	spareAt    time.Time // when to make the next one
	spareRetry time.Duration
	stats      Stats
}

// shelf holds the sandboxes of one policy. Its fields are guarded by pool.mu.
type shelf struct {
	policy Policy
	ready  []*warm
	want   int       // how many to keep: one until there was a use for it
	used   time.Time // the last Start
	fillAt time.Time // when to make the next one
	retry  time.Duration
}

// warm is a sandbox that waits for its command.
type warm struct {
	proc   *Process
	sight  string
	mounts uint64
}

// newPool returns nil when the options switch it off, or when changes of mounts
// cannot be noticed on this machine.
func newPool(l *Launcher, o Options) *pool {
	p := &pool{launcher: l, each: o.WarmPerPolicy, total: o.WarmTotal, idle: o.WarmIdle, wake: make(chan struct{}, 1), shelves: map[string]*shelf{}}
	if p.each == 0 {
		p.each = defaultWarmPerPolicy
	}
	if p.total == 0 {
		p.total = defaultWarmTotal
	}
	if p.idle == 0 {
		p.idle = defaultWarmIdle
	}
	if p.each < 0 || p.total < 0 || p.idle < 0 {
		return nil
	}
	var err error
	if p.mounts, err = newMountWatch(); err != nil {
		return nil
	}
	p.ctx, p.stop = context.WithCancel(context.Background())
	if !o.AllowFullAccess { // else there may never be a use for it
		p.spareUsed = time.Now()
	}
	p.keeper.Go(p.keep)
	return p
}

// close ends the keeper and drops everything. Nobody may be in take.
func (p *pool) close() {
	if p == nil {
		return
	}
	p.stop()
	p.keeper.Wait()
	p.flush()
	p.spare.discard()
	p.mounts.close()
}

// flush drops everything, what is being made now included, and waits until it is
// gone.
func (p *pool) flush() {
	if p == nil {
		return
	}
	p.making.Lock()
	all := p.dropAll()
	p.making.Unlock()
	for _, w := range all {
		<-w.proc.gone
	}
}

func (p *pool) dropAll() []*warm {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*warm
	for _, s := range p.shelves {
		all = append(all, s.ready...)
		p.drop(s, len(s.ready))
	}
	return all
}

// drop ends the oldest n of a shelf. The caller holds mu.
func (p *pool) drop(s *shelf, n int) {
	for _, w := range s.ready[:n] {
		_ = w.proc.Kill()
		p.stats.Dropped++
	}
	p.stats.Ready -= n
	s.ready = slices.Delete(s.ready, 0, n)
}

// take returns a sandbox for the policy, the newest, or nil. It may be used if it is
// fresh.
func (p *pool) take(key string) *warm {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.shelves[key]
	if s == nil || len(s.ready) == 0 {
		return nil
	}
	w := s.ready[len(s.ready)-1]
	s.ready = slices.Delete(s.ready, len(s.ready)-1, len(s.ready))
	p.stats.Ready--
	return w
}

// fresh tells whether a sandbox made now would be like this one.
func (p *pool) fresh(w *warm, policy Policy) bool {
	if policy.Mode == FullAccess {
		return true // it has no view of its own
	}
	if n := w.proc.session; n != nil && !n.alive() {
		return false // the next one begins the session anew
	}
	now, ok := p.launcher.look(policy)
	return ok && now.text == w.sight && p.mounts.generation() == w.mounts
}

// lost counts a sandbox that was taken but could not be used.
func (p *pool) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Dropped++
}

// used tells the pool that a command of the policy has been started, and has it
// make the next sandbox.
func (p *pool) used(key string, policy Policy, hit bool) {
	if p == nil {
		return
	}
	p.mu.Lock()
	s := p.shelves[key]
	if s == nil {
		for _, list := range []*[]string{&policy.Roots, &policy.ProtectedNames, &policy.HiddenPaths, &policy.ReadRoots, &policy.UnixSockets} {
			*list = slices.Clone(*list) // the caller's may change
		}
		s = &shelf{policy: policy, want: 1}
		p.shelves[key] = s
	}
	s.used = time.Now()
	s.want = max(s.want, 1)
	if hit {
		s.want = p.each
	}
	if s.retry == 0 {
		s.fillAt = s.used.Add(refillDelay)
	}
	if policy.Mode != FullAccess {
		p.spareUsed = s.used
		if p.spareRetry == 0 {
			p.spareAt = s.fillAt
		}
	}
	p.mu.Unlock()
	p.poke()
}

func (p *pool) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Stats tells what the launcher has done so far.
func (l *Launcher) Stats() Stats {
	var s Stats
	if l.pool != nil {
		l.pool.mu.Lock()
		s = l.pool.stats
		l.pool.mu.Unlock()
	}
	s.Warm, s.Cold = l.warm.Load(), l.cold.Load()
	return s
}
