package sandbox

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The variants of a start are timed in turn, in random order within each round, so
// that a busy machine disturbs all of them alike. Ratios to a plain start repeat
// from run to run; times do not.

const (
	benchRounds = 100
	burst       = 200                   // starts one after the other
	pause       = 20 * time.Millisecond // for the kernel, after each sandbox
)

// timings of one variant.
type timings []time.Duration

func (t timings) median() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(t))[len(t)/2]
}

func (t timings) tenth() time.Duration {
	if len(t) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(t))[len(t)/10]
}

// bench is what the variants share.
type bench struct {
	workspace  string
	policy     Policy
	warm, cold *Launcher
	spare      *Launcher // with a spare init, but no sandbox of the policy
	null       *os.File
	filter     *os.File // of system calls, for bubblewrap
	bwrap      string
}

var benchCommand = Command{Argv: []string{"/bin/true"}}

func newBench(b *testing.B) *bench {
	n := &bench{workspace: workspace(b)}
	for _, name := range defaultProtected { // bubblewrap does not make what is missing
		if err := os.Mkdir(filepath.Join(n.workspace, name), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	hidden := filepath.Join(n.workspace, "secret")
	if err := os.WriteFile(hidden, []byte("secret"), 0o600); err != nil {
		b.Fatal(err)
	}
	n.policy = Policy{Mode: WorkspaceWrite, Roots: []string{n.workspace}, HiddenPaths: []string{hidden}}
	n.warm = newLauncher(b, Options{AllowFullAccess: true})
	n.cold = newLauncher(b, Options{AllowFullAccess: true, WarmPerPolicy: -1})
	n.spare = newLauncher(b, Options{WarmTotal: 1})
	var err error
	if n.null, err = os.OpenFile(os.DevNull, os.O_RDWR, 0); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.null.Close() })
	if n.bwrap, err = exec.LookPath("bwrap"); err != nil {
		return n
	}
	prog, err := filterFor(runtime.GOARCH)
	if err != nil {
		b.Fatal(err)
	}
	var filter []byte
	for _, i := range prog {
		filter = append(filter, byte(i.code), byte(i.code>>8), i.jt, i.jf, byte(i.k), byte(i.k>>8), byte(i.k>>16), byte(i.k>>24))
	}
	name := filepath.Join(b.TempDir(), "filter")
	if err := os.WriteFile(name, filter, 0o600); err != nil {
		b.Fatal(err)
	}
	if n.filter, err = os.Open(name); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { n.filter.Close() })
	return n
}

// fork is a start without package sandbox, from the request to the exit status.
func (n *bench) fork(files []uintptr, argv ...string) error {
	null := n.null.Fd()
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Files: append([]uintptr{null, null, null}, files...)})
	if err != nil {
		return err
	}
	var status unix.WaitStatus
	for {
		_, err = unix.Wait4(pid, &status, 0, nil)
		if err != unix.EINTR {
			break
		}
	}
	if err == nil && status != 0 {
		err = fmt.Errorf("%s: status %#x", argv[0], status)
	}
	return err
}

func (n *bench) plain() error { return n.fork(nil, "/bin/true") }

// bubblewrap builds the view that n.policy stands for.
func (n *bench) bubblewrap() error {
	if _, err := n.filter.Seek(0, 0); err != nil {
		return err
	}
	ws := n.workspace
	args := []string{
		n.bwrap, "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
		"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp", "--tmpfs", "/var/tmp", "--tmpfs", "/run", "--dir", homeDir,
		"--ro-bind-data", "4", "/etc/passwd", "--ro-bind-data", "5", "/etc/group",
		"--bind", ws, ws,
	}
	for _, name := range defaultProtected {
		args = append(args, "--ro-bind", filepath.Join(ws, name), filepath.Join(ws, name))
	}
	args = append(args, "--ro-bind", "/dev/null", ws+"/secret", "--seccomp", "3", "--chdir", ws, "/bin/true")
	// the data of the account files is read from descriptors, empty here
	return n.fork([]uintptr{n.filter.Fd(), n.null.Fd(), n.null.Fd()}, args...)
}

func runOnce(l *Launcher, p Policy) error {
	proc, err := l.Start(noContext, p, benchCommand)
	if err != nil {
		return err
	}
	res, err := proc.Wait()
	if err == nil && (res.ExitCode != 0 || res.Signal != 0) {
		err = fmt.Errorf("%+v", res)
	}
	return err
}

// settle waits until the pool is full again and old sandboxes are gone, so that
// their work is in nobody's time.
func settle(l *Launcher) {
	for {
		l.mu.Lock()
		running := len(l.running)
		l.mu.Unlock()
		if s := l.Stats(); l.pool == nil && running == 0 || l.pool != nil && s.Ready > 0 && running == s.Ready && s.Ready == l.pool.wanted() {
			return
		}
		runtime.Gosched()
		time.Sleep(time.Millisecond)
	}
}

// settleSpare waits for the spare, and ends sandboxes made ahead.
func (n *bench) settleSpare(b *testing.B) {
	p := n.spare.pool
	await(b, "a spare init", func() bool {
		p.mu.Lock()
		for _, s := range p.shelves {
			s.want = 0
		}
		have := p.spare != nil
		p.mu.Unlock()
		p.flush()
		return have
	})
}

func (p *pool) wanted() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, s := range p.shelves {
		n += s.want
	}
	return n
}

type variant struct {
	name string
	run  func() error
	rest func() // afterwards, not timed
}

// rounds times variants in turn.
func rounds(b *testing.B, variants []variant) map[string]timings {
	all := map[string]timings{}
	for round := range benchRounds + 3 {
		for _, i := range rand.Perm(len(variants)) {
			v := variants[i]
			begin := time.Now()
			err := v.run()
			took := time.Since(begin)
			if err != nil {
				b.Fatalf("%s: %v", v.name, err)
			}
			if v.rest != nil {
				v.rest()
				// the kernel tells nobody when it has taken old namespaces down
				time.Sleep(pause)
			}
			if round >= 3 {
				all[v.name] = append(all[v.name], took)
			}
		}
	}
	return all
}

// BenchmarkStart times a start of /bin/true from the request to the known exit
// status. x-plain is the ratio to a plain fork and exec in the same rounds, of the
// medians and of the tenth percentiles; a busy machine disturbs the latter less.
//
//	warm          a sandbox of the policy is ready
//	cold          the policy is new to a launcher that has been idle
//	from-nothing  a launcher that keeps nothing ready
func BenchmarkStart(b *testing.B) {
	n := newBench(b)
	full := Policy{Mode: FullAccess}
	restWarm, restCold := func() { settle(n.warm) }, func() { settle(n.cold) }
	variants := []variant{
		{"plain", n.plain, nil},
		{"cold", func() error { return runOnce(n.spare, n.policy) }, func() { n.settleSpare(b) }},
		{"warm", func() error { return runOnce(n.warm, n.policy) }, restWarm},
		{"from-nothing", func() error { return runOnce(n.cold, n.policy) }, restCold},
		{"full-access-cold", func() error { return runOnce(n.cold, full) }, restCold},
		{"full-access-warm", func() error { return runOnce(n.warm, full) }, restWarm},
	}
	if n.bwrap != "" {
		variants = append(variants, variant{"bwrap", n.bubblewrap, func() {}})
	}
	var heap []byte
	measure := sync.OnceValue(func() map[string]timings { return rounds(b, variants) })
	measureHeap := sync.OnceValue(func() map[string]timings {
		heap = make([]byte, 256<<20)
		for i := 0; i < len(heap); i += 4096 {
			heap[i] = 1
		}
		return rounds(b, variants[:3])
	})
	report := func(b *testing.B, all map[string]timings, name string) {
		t, plain := all[name], all["plain"]
		b.ReportMetric(float64(t.median().Nanoseconds()), "ns/op")
		b.ReportMetric(float64(t.median())/float64(plain.median()), "x-plain")
		b.ReportMetric(float64(t.tenth())/float64(plain.tenth()), "x-plain-p10")
	}
	for _, name := range []string{"plain", "warm", "cold", "from-nothing", "full-access-cold", "full-access-warm", "bwrap"} {
		b.Run(name, func(b *testing.B) {
			if name == "bwrap" && n.bwrap == "" {
				b.Skip("bwrap is not installed: nothing to compare with")
			}
			report(b, measure(), name)
			if name == "warm" {
				b.ReportMetric(slotMemory(b, n.warm), "KiB/slot")
			}
		})
	}
	b.Run("back-to-back", func(b *testing.B) {
		plain := measure()["plain"].median()
		before := n.warm.Stats()
		begin := time.Now()
		for range burst {
			if err := runOnce(n.warm, n.policy); err != nil {
				b.Fatal(err)
			}
		}
		mean := time.Since(begin) / burst
		after := n.warm.Stats()
		b.ReportMetric(float64(mean.Nanoseconds()), "ns/op")
		b.ReportMetric(float64(mean)/float64(plain), "x-plain")
		b.ReportMetric(float64(after.Warm-before.Warm)/burst, "hit-rate")
	})
	for _, name := range []string{"plain", "cold", "warm"} {
		b.Run("heap256/"+name, func(b *testing.B) { report(b, measureHeap(), name) })
	}
	runtime.KeepAlive(heap)
}

// slotMemory is the mean of the proportional memory of waiting sandboxes, in KiB.
func slotMemory(b *testing.B, l *Launcher) float64 {
	settle(l)
	l.mu.Lock()
	defer l.mu.Unlock()
	sum, n := 0, 0
	for p := range l.running {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", p.pid))
		if err != nil {
			return 0 // an ordinary user may not look
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) == 3 && f[0] == "Pss:" {
				kib, err := strconv.Atoi(f[1])
				if err != nil {
					b.Fatal(err)
				}
				sum += kib
				n++
			}
		}
	}
	return float64(sum) / float64(max(n, 1))
}
