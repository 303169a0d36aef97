package sandbox

import (
	"errors"
	"fmt"
	"os"
	slashpath "path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Controllers that limits need.
const (
	memoryController = "memory"
	pidsController   = "pids"
	cpuController    = "cpu"
)

// initTasks is how many tasks the init itself may have beside the command's, and
// initSpare how many it may still start when its command arrives.
const (
	initTasks = 16
	initSpare = 3
)

// leastMemory is below what any command can start with, the init's own memory included.
const leastMemory = 16 << 20

// leastData is what the init, a Go program, needs of RLIMIT_DATA, with room to spare.
const leastData = 128 << 20

// cgroups is where this machine lets the daemon make groups with limits for whole
// commands. It is found out when the first command asks for such a limit: on version 2
// that moves the daemon into a leaf of its own, since a group with processes cannot hand
// its controllers on (cgroup-v2.rst, "no internal process constraint").
type cgroups struct {
	version int               // 1, 2, or 0 for none
	parents map[string]string // by controller: the directory that groups are made in
	why     string            // not available
	prefix  string
	next    atomic.Uint64
}

// controllers names what can be limited, for Probe.
func (c *cgroups) controllers() string {
	var names []string
	for _, n := range []string{memoryController, pidsController, cpuController} {
		if c.parents[n] != "" {
			names = append(names, n)
		}
	}
	return strings.Join(names, ", ")
}

// group is the group of one command, one directory for each hierarchy.
type group struct {
	version int
	dirs    map[string]string // by controller
}

// limitCgroup reports whether l asks for something that only a group can limit well.
func limitCgroup(l Limits) bool { return l.MemoryBytes != 0 || l.Processes != 0 || l.CPUMilli != 0 }

// confine puts the init of p, which has no children yet, into a group with the limits
// of the command, where this machine has groups, and returns the request with what is
// left for the init to set.
func (l *Launcher) confine(p *Process, r *run) (*run, error) {
	p.mu.Lock()
	p.limits = r.limits
	p.mu.Unlock()
	if !limitCgroup(r.limits) || testOnlyOmit.limits {
		return r, nil
	}
	l.cgroupsOnce.Do(func() { l.cgroups = findCgroups() })
	if r.limits.MemoryBytes != 0 && r.limits.MemoryBytes < leastMemory {
		return nil, &SetupError{Stage: "limits", Err: fmt.Errorf("a memory limit of %d bytes is too little: at least %d MiB", r.limits.MemoryBytes, leastMemory>>20)}
	}
	c, limits, group := l.cgroups, r.limits, &group{}
	if limits.CPUMilli != 0 && c.parents[cpuController] == "" {
		return nil, &UnsupportedError{Missing: []Layer{{
			Name: "cpu limit", Reason: "it needs a cgroup: " + c.why,
			Remedy: "run the executor as root, or under systemd with Delegate=yes, or leave the cpu limit out",
		}}}
	}
	if c.version != 0 {
		g, err := c.make(limits)
		if err != nil {
			return nil, &SetupError{Stage: "cgroup", Err: err}
		}
		p.mu.Lock()
		late := p.left
		p.group, group = g, g
		p.mu.Unlock()
		if err = g.join(p.pid); err == nil {
			err = g.tightenPids(limits.Processes)
		}
		if late { // the init died meanwhile, and nobody else removes the group
			g.remove()
		}
		if err != nil {
			return nil, &SetupError{Stage: "cgroup", Err: err}
		}
	}
	if limits.MemoryBytes != 0 && group.dirs[memoryController] == "" {
		// A limit for each process is better than none. The init has to live below it too.
		if bytes := max(limits.MemoryBytes, leastData); limits.DataBytes == 0 || bytes < limits.DataBytes {
			limits.DataBytes = bytes
		}
	}
	if group.dirs[pidsController] != "" {
		limits.Processes = 0 // or the limit of each user's would be met first, and nobody could say so
	}
	confined := *r
	confined.limits = limits
	return &confined, nil
}

// limitsHit reads, while the group is still there, what the command ran into.
func (p *Process) limitsHit(res Result) (h LimitsHit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.group != nil {
		h = p.group.hit()
	}
	used := res.UserTime + res.SystemTime
	h.CPUTime = p.limits.CPUSeconds != 0 &&
		(res.Signal == unix.SIGXCPU || res.Signal == unix.SIGKILL && used >= time.Duration(p.limits.CPUSeconds)*time.Second)
	h.FileSize = p.limits.FileBytes != 0 && res.Signal == unix.SIGXFSZ
	return h
}

// leaveGroup removes the group when nothing is left in it.
func (p *Process) leaveGroup() {
	p.mu.Lock()
	p.left = true
	g := p.group
	p.mu.Unlock()
	if g != nil {
		g.remove()
	}
}

// make makes a group with the limits of one command.
func (c *cgroups) make(l Limits) (*group, error) {
	g := &group{version: c.version, dirs: map[string]string{}}
	name := c.prefix + strconv.FormatUint(c.next.Add(1), 10)
	made := map[string]bool{}
	wanted := map[string]bool{memoryController: l.MemoryBytes != 0, pidsController: l.Processes != 0, cpuController: l.CPUMilli != 0}
	for controller, parent := range c.parents {
		if !wanted[controller] {
			continue
		}
		dir := slashpath.Join(parent, name)
		if !made[dir] {
			if err := os.Mkdir(dir, 0o755); err != nil {
				g.remove()
				return nil, err
			}
			made[dir] = true
		}
		g.dirs[controller] = dir
	}
	if err := g.set(l); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

func (g *group) set(l Limits) error {
	if dir := g.dirs[pidsController]; dir != "" {
		if err := writeGroup(dir, "pids.max", l.Processes+initTasks); err != nil {
			return err
		}
	}
	if dir := g.dirs[memoryController]; dir != "" {
		if err := g.setMemory(dir, l.MemoryBytes); err != nil {
			return err
		}
	}
	if dir := g.dirs[cpuController]; dir != "" {
		return g.setCPU(dir, l.CPUMilli)
	}
	return nil
}

func (g *group) setMemory(dir string, bytes uint64) error {
	if g.version == 2 {
		_ = writeGroup(dir, "memory.swap.max", 0) // where there is no swap accounting there is no such file
		return writeGroup(dir, "memory.max", bytes)
	}
	if err := writeGroup(dir, "memory.limit_in_bytes", bytes); err != nil {
		return err
	}
	_ = writeGroup(dir, "memory.memsw.limit_in_bytes", bytes) // needs swap accounting
	return nil
}

// cpuPeriod is the kernel's default period for bandwidth, in microseconds.
const cpuPeriod = 100_000

func (g *group) setCPU(dir string, milli uint64) error {
	quota := max(1000, milli*cpuPeriod/1000) // the kernel takes no less than a millisecond
	if g.version == 2 {
		return os.WriteFile(slashpath.Join(dir, "cpu.max"), fmt.Appendf(nil, "%d %d", quota, cpuPeriod), 0)
	}
	if err := writeGroup(dir, "cpu.cfs_period_us", cpuPeriod); err != nil {
		return err
	}
	return writeGroup(dir, "cpu.cfs_quota_us", quota)
}

func writeGroup(dir, file string, n uint64) error {
	return os.WriteFile(slashpath.Join(dir, file), strconv.AppendUint(nil, n, 10), 0)
}

// join moves a process with all its threads.
func (g *group) join(pid int) error {
	done := map[string]bool{}
	for _, dir := range g.dirs {
		if !done[dir] {
			if err := writeGroup(dir, "cgroup.procs", uint64(pid)); err != nil {
				return err
			}
			done[dir] = true
		}
	}
	return nil
}

// tightenPids leaves the command as many tasks as it may have, now that it is known
// how many the init has.
func (g *group) tightenPids(limit uint64) error {
	dir := g.dirs[pidsController]
	if dir == "" {
		return nil
	}
	b, err := os.ReadFile(slashpath.Join(dir, "pids.current"))
	if err != nil {
		return err
	}
	have, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return err
	}
	return writeGroup(dir, "pids.max", limit+min(have+initSpare, initTasks))
}

// hit reads which limits the command ran into.
func (g *group) hit() (h LimitsHit) {
	if dir := g.dirs[memoryController]; dir != "" {
		file := "memory.events"
		if g.version == 1 {
			file = "memory.oom_control"
		}
		h.Memory = counter(dir, file, "oom_kill") > 0
	}
	if dir := g.dirs[pidsController]; dir != "" {
		h.Processes = counter(dir, "pids.events", "max") > 0
	}
	return h
}

// counter is one line of a file of names and numbers.
func counter(dir, file, name string) uint64 {
	b, err := os.ReadFile(slashpath.Join(dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}

// remove removes the group, whose processes are dead. The kernel may need a moment to
// notice; a group that stays is empty and harmless.
func (g *group) remove() {
	done := map[string]bool{}
	for _, dir := range g.dirs {
		if done[dir] {
			continue
		}
		done[dir] = true
		for wait := time.Millisecond; wait < time.Second; wait *= 2 {
			if err := os.Remove(dir); err == nil || !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(wait)
		}
	}
}

// limitState is what a Launcher keeps for limits.
type limitState struct {
	cgroupsOnce sync.Once
	cgroups     *cgroups
}
