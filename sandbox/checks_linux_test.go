package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// check is one attempt to get out of the sandbox, or to abuse it: a row of CHECKS.md.
type check struct {
	id string
	// attempt says in words what is tried, script how: a shell script that runs in a
	// fresh sandbox. WS is a writable root, OUT a folder beside it, B what holds both, P
	// the probe; try runs one command and prints whether it "did" or was "refused".
	attempt, script string
	// want is what must be printed, line by line; | separates alternatives of a line and
	// {uid} stands for the command's user.
	want string
	// host says in words what is looked at from outside; see does it afterwards.
	host string
	see  func(*stage) error
	// carried is the layer without which the check must fail, or several, or what else
	// does it. uncertain is a layer without which it fails on some machines only.
	carried, uncertain string
	// unsafe names a layer without which the row is not tried, and why.
	unsafe [2]string
	slow   bool // without a layer only tried where it must fail

	prepare func(*stage) error // the host's side, before
	policy  func(*stage, *Policy)
	refused bool   // Start itself must fail, with the text in want
	tty     bool   // on a terminal
	arch    string // where it is possible at all, "" everywhere
	absent  string // why there is nothing to try
	note    string
}

// What carries a check if no single layer does.
const (
	several      = "several"       // any one of them may be missing
	byInit       = "init"          // what the init does, without any layer
	byDaemon     = "daemon"        // what the daemon does before anything starts
	byPIDs       = "process ids"   // a namespace that no test leaves out
	acceptedHole = "accepted hole" // the row records what is possible
)

// switchable are the layers that a test can leave out, in the order of the document.
var switchable = []struct {
	name string
	omit omission
}{
	{"view", omission{view: true}},
	{"landlock", omission{landlock: true}},
	{"seccomp", omission{seccomp: true}},
	{"namespaces", omission{namespaces: unix.CLONE_NEWNET | unix.CLONE_NEWIPC}},
	{"capabilities", omission{capabilities: true}},
	{"limits", omission{limits: true}},
}

func allChecks() []check {
	return slices.Concat(fileChecks, protectionChecks, networkChecks, processChecks, kernelChecks, resourceChecks)
}

const (
	withoutKey = "SANDBOX_TEST_WITHOUT" // the layer to leave out
	checksKey  = "SANDBOX_TEST_CHECKS"  // a worker: the folder that it works in
	secretKey  = "SANDBOX_TEST_SECRET"
)

// This runs before the hidden roles begin, in each of them.
var _ = leaveOut(os.Getenv(withoutKey))

func leaveOut(layer string) bool {
	for _, s := range switchable {
		if s.name == layer {
			testOnlyOmit = s.omit
			testOnlyEnv = []string{withoutKey + "=" + layer}
			return true
		}
	}
	return false
}

// TestChecks runs every row of CHECKS.md as each identity that this process can take,
// and shows for each layer that its rows fail without it.
func TestChecks(t *testing.T) {
	if dir := os.Getenv(checksKey); dir != "" {
		runWorker(t, dir)
		return
	}
	if testing.Short() {
		t.Skip("-short: the rows themselves take some 20 s")
	}
	base := checksBase(t)
	workers := []*worker{{name: "user", uid: os.Getuid()}}
	if os.Getuid() == 0 {
		workers = []*worker{{name: "root"}, {name: "user", uid: 65534}}
	}
	full := len(workers)
	for _, s := range switchable {
		workers = append(workers, &worker{name: "no-" + s.name, uid: os.Getuid(), without: s.name})
	}
	var wg sync.WaitGroup
	turns := make(chan struct{}, 2)
	for _, w := range workers {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := w.run(t.Context(), base); err != nil {
				t.Errorf("%s: %v", w.name, err)
			}
		})
	}
	wg.Wait()
	for _, w := range workers[:full] {
		for _, c := range allChecks() {
			t.Run(w.name+"/"+c.id, func(t *testing.T) {
				if why := c.impossible(w.uid); why != "" {
					t.Skip(why)
				}
				if seen, bad := w.failures[c.id]; bad {
					t.Errorf("%s: %s", c.attempt, seen)
				}
			})
		}
	}
	for _, w := range workers[full:] {
		t.Run("without/"+w.without, func(t *testing.T) { mustFail(t, w) })
	}
}

// mustFail compares the failures of a worker with what the table says of its layer.
func mustFail(t *testing.T, w *worker) {
	carries := 0
	for _, c := range allChecks() {
		seen, failed := w.failures[c.id]
		switch {
		case c.impossible(w.uid) != "" || c.spared(w.without) || c.uncertain == w.without:
		case c.carried == w.without && failed:
			carries++
		case c.carried == w.without:
			t.Errorf("%s still passes without its layer: %s", c.id, c.attempt)
		case failed:
			t.Errorf("%s fails although %s carries it: %s", c.id, c.carried, seen)
		}
	}
	if carries == 0 {
		t.Error("no check would notice that the layer is missing")
	}
}

// impossible says why a row cannot be tried here, if so.
func (c *check) impossible(uid int) string {
	switch {
	case c.absent != "":
		return "not applicable: " + c.absent
	case c.arch != "" && c.arch != runtime.GOARCH:
		return "needs " + c.arch
	case c.id == "F13" && os.Getuid() != 0:
		return "needs root to make a set-uid file of another user"
	case raceDetector && (c.id == "R03" || c.id == "R02" && uid != 0):
		return "the race detector's own memory is over a limit of one process"
	}
	return ""
}

// spared tells whether a row is not tried without a layer.
func (c *check) spared(without string) bool {
	return without != "" && (c.unsafe[0] == without || c.slow && c.carried != without)
}

// try prints whether a command did what it was told, and nothing of what it said.
const tryFunction = `try() { if (eval "$1") >/dev/null 2>&1; then echo did; else echo refused; fi; }
`

// run tries the row and returns what was not as it must be.
func (c *check) run(t *testing.T, l *Launcher, dir string) (err error) {
	s, err := newStage(l, dir, c.id)
	defer func() {
		for _, undo := range slices.Backward(s.undo) {
			undo()
		}
	}()
	if err == nil && c.prepare != nil {
		err = c.prepare(s)
	}
	if err != nil {
		return fmt.Errorf("preparing: %w", err)
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}, HiddenPaths: []string{s.base + "/home/.ssh", s.base + "/daemon.key", s.base + "/run"}}
	if c.policy != nil {
		c.policy(s, &p)
	}
	cmd := Command{Argv: []string{"/bin/sh", "-c", tryFunction + c.script}, Env: s.env}
	if c.tty {
		s.out, err = runOnTerminal(l, p, cmd)
	} else {
		s.out, err = runCommand(t, l, p, cmd)
	}
	got := strings.TrimSpace(strings.ReplaceAll(s.out.stdout, "\r", ""))
	switch {
	case c.refused && err == nil:
		return errors.New("it was started")
	case c.refused:
		if !strings.Contains(err.Error(), c.want) {
			return fmt.Errorf("refused with %q, not %q", err, c.want)
		}
	case err != nil:
		return err
	case !matches(strings.ReplaceAll(c.want, "{uid}", strconv.Itoa(l.id.uid)), got):
		return fmt.Errorf("saw %q (and %q), not %q", got, s.out.stderr, c.want)
	}
	if c.see != nil {
		return c.see(s)
	}
	return nil
}

// matches compares line by line with alternatives.
func matches(want, got string) bool {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	return len(w) == len(g) && !slices.ContainsFunc(w, func(line string) bool {
		seen := g[0]
		g = g[1:]
		return !slices.Contains(strings.Split(line, "|"), seen)
	})
}

func runOnTerminal(l *Launcher, p Policy, c Command) (outcome, error) {
	c.TTY = &WinSize{24, 80}
	proc, err := l.Start(noContext, p, c)
	if err != nil {
		return outcome{}, err
	}
	defer proc.TTY().Close()
	text, err := io.ReadAll(proc.TTY())
	if err != nil && !errors.Is(err, unix.EIO) { // the end of a terminal
		return outcome{}, err
	}
	res, err := proc.Wait()
	return outcome{stdout: string(text), Result: res}, err
}
