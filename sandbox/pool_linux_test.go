package sandbox

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// prepare runs one command of a policy and waits until the next one will find a
// sandbox ready.
func prepare(t testing.TB, l *Launcher, p Policy) {
	t.Helper()
	if err := runOnce(l, p); err != nil {
		t.Fatal(err)
	}
	key := policyKey(p)
	await(t, "a ready sandbox", func() bool {
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		return len(l.pool.shelves[key].ready) > 0
	})
}

// await waits for a state that no event tells of.
func await(t testing.TB, what string, done func() bool) {
	t.Helper()
	for begin := time.Now(); !done(); runtime.Gosched() {
		if time.Since(begin) > time.Minute {
			t.Fatalf("waited a minute for %s", what)
		}
		_, _ = unix.Poll(nil, 1)
	}
}

// starts tells what f does to the numbers of warm and cold starts.
func starts(l *Launcher, f func()) (warm, cold uint64) {
	before := l.Stats()
	f()
	after := l.Stats()
	return after.Warm - before.Warm, after.Cold - before.Cold
}

func TestReadySandboxIsUsedOnceAndReplaced(t *testing.T) {
	l := newLauncher(t, Options{})
	p := Policy{Mode: ReadOnly}
	prepare(t, l, p)
	const mark = "ls /tmp /dev/shm ~; echo x > /tmp/mark; echo x > /dev/shm/mark; echo x > ~/mark; sleep 1000 &"
	for range 3 {
		warm, cold := starts(l, func() {
			if out := runShell(t, l, p, mark); strings.Contains(out.stdout, "mark") || out.ExitCode != 0 {
				t.Errorf("a command met what another had left: %+v", out)
			}
		})
		if warm != 1 || cold != 0 {
			t.Errorf("%d warm and %d cold starts, want a warm one", warm, cold)
		}
		prepare(t, l, p)
	}
}

func TestPoolCanBeSwitchedOff(t *testing.T) {
	for _, o := range []Options{{WarmPerPolicy: -1}, {WarmTotal: -1}, {WarmIdle: -1}} {
		l := newLauncher(t, o)
		for range 2 {
			if err := runOnce(l, Policy{Mode: ReadOnly}); err != nil {
				t.Fatal(err)
			}
		}
		if s := l.Stats(); s != (Stats{Cold: 2}) {
			t.Errorf("%+v: %+v, want two cold starts and nothing else", o, s)
		}
	}
}

// Every change of what a policy meets must send the next command to a new sandbox.
// The script then prints what is wrong, or nothing.
func TestChangedFilesAreNeverServedFromBefore(t *testing.T) {
	write := func(path, text string) error { return os.WriteFile(path, []byte(text), 0o644) }
	for _, c := range []struct {
		name   string
		change func(ws string) error
		script string
	}{
		{
			"workspace made anew",
			func(ws string) error {
				return errors.Join(removeAll(ws), os.Mkdir(ws, 0o755), write(ws+"/new", ""))
			},
			"test -f new || echo old folder; echo x > made || echo not writable; mkdir .git/hooks 2>/dev/null && echo .git open",
		},
		{
			"workspace swapped",
			func(ws string) error {
				return errors.Join(os.Rename(ws, ws+".old"), os.Mkdir(ws, 0o755), write(ws+"/new", ""))
			},
			"test -f new || echo old folder; echo x > made || echo not writable; mkdir .git/hooks 2>/dev/null && echo .git open",
		},
		{
			"placeholder filled",
			func(ws string) error { return write(ws+"/.git/config", "mine") },
			"grep -q mine .git/config || echo not seen; echo x 2>/dev/null > .git/config && echo written",
		},
		{
			"placeholder made anew",
			func(ws string) error {
				return again(func() error {
					return errors.Join(os.RemoveAll(ws+"/.git"), os.Mkdir(ws+"/.git", 0o755), write(ws+"/.git/config", "mine"))
				})
			},
			"grep -q mine .git/config || echo not seen; echo x 2>/dev/null > .git/config && echo written",
		},
		{
			"placeholder removed",
			func(ws string) error { return os.Remove(ws + "/.git") },
			"mkdir -p .git/hooks 2>/dev/null && echo made",
		},
		{
			"placeholder turned into a file",
			func(ws string) error {
				return again(func() error { return errors.Join(os.RemoveAll(ws+"/.git"), write(ws+"/.git", "gitdir: x")) })
			},
			"echo x 2>/dev/null > .git && echo written; rm -f .git 2>/dev/null && echo removed",
		},
		{
			"hidden path appeared",
			func(ws string) error { return write(ws+"/late", "SECRET") },
			"cat late 2>/dev/null",
		},
		{
			"hidden path made anew",
			func(ws string) error { return errors.Join(os.Remove(ws+"/secret"), write(ws+"/secret", "SECRET")) },
			"cat secret 2>/dev/null",
		},
		{
			"hidden path replaced by renaming",
			func(ws string) error {
				return errors.Join(write(ws+"/next", "SECRET"), os.Rename(ws+"/next", ws+"/secret"))
			},
			"cat secret 2>/dev/null",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLauncher(t, Options{})
			ws := filepath.Join(workspace(t), "ws")
			if err := errors.Join(os.Mkdir(ws, 0o755), write(ws+"/secret", "SECRET")); err != nil {
				t.Fatal(err)
			}
			p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{ws + "/secret", ws + "/late"}}
			prepare(t, l, p)
			if warm, _ := starts(l, func() { runShell(t, l, p, "true") }); warm != 1 {
				t.Error("the unchanged files were not served by a ready sandbox")
			}
			prepare(t, l, p)
			if err := c.change(ws); err != nil {
				t.Fatal(err)
			}
			if out := runShell(t, l, p, c.script); out.stdout != "" {
				t.Errorf("after the change: %q %q", out.stdout, out.stderr)
			}
		})
	}
}

// removeAll removes a folder in which the next sandbox may be holding places.
func removeAll(path string) error { return again(func() error { return os.RemoveAll(path) }) }

// again changes what the next sandbox may be changing too.
func again(change func() error) error {
	err := change()
	for tries := 0; err != nil && tries < 1000; tries++ {
		err = change()
	}
	return err
}

func TestHiddenPathThatAppearsAfterThePlanSpoilsTheSandbox(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{ws + "/late"}}
	pl, err := l.planFor(p)
	if err != nil {
		t.Fatal(err)
	}
	defer pl.release()
	if s, ok := l.look(p); !ok || !s.made(pl) {
		t.Fatal("an unchanged plan is not what one sees")
	}
	if err := os.WriteFile(ws+"/late", []byte("SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	if s, ok := l.look(p); !ok || s.made(pl) {
		t.Error("a sandbox would be used that does not hide what has to be hidden")
	}
}

func TestPlacesHeldForOtherPoliciesDoNotFailAStart(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	prepare(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}})
	if err := errors.Join(os.Remove(ws+"/.git"), os.Mkdir(ws+"/.git", 0o755)); err != nil {
		t.Fatal(err)
	}
	if out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}, TmpBytes: 1 << 20}, "echo x > .git/config"); out.ExitCode == 0 {
		t.Error("the new .git is not protected")
	}
}

func TestRootOfAnotherOwnerIsMappedAnew(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("files cannot be given to another user without root")
	}
	l := newLauncher(t, Options{})
	ws := workspace(t)
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	prepare(t, l, p)
	if err := os.Chown(ws, 4321, 4321); err != nil {
		t.Fatal(err)
	}
	if out := runShell(t, l, p, "echo x > file"); out.ExitCode != 0 {
		t.Errorf("the new owner's folder is not writable: %+v", out)
	}
	var st unix.Stat_t
	if err := unix.Stat(ws+"/file", &st); err != nil || st.Uid != 4321 {
		t.Errorf("the file belongs to uid %d, %v; want the folder's owner", st.Uid, err)
	}
}

func TestPoliciesDoNotShareSandboxes(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	open := Policy{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}}
	prepare(t, l, open)
	for _, p := range []Policy{
		{Mode: ReadOnly, Roots: []string{ws}},
		{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: nil},
		{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}, HiddenPaths: []string{ws}},
		{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}, TmpBytes: 1 << 20},
		{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}, View: ViewMinimal},
	} {
		if warm, _ := starts(l, func() { _ = runOnce(l, p) }); warm != 0 {
			t.Errorf("%+v was served by a sandbox of another policy", p)
		}
	}
	limited := open
	limited.Limits.OpenFiles = 99
	if warm, _ := starts(l, func() {
		if out := runShell(t, l, limited, "ulimit -n"); out.stdout != "99\n" {
			t.Errorf("limits of a ready sandbox: %q, want 99", out.stdout)
		}
	}); warm != 1 {
		t.Error("limits come with the command, but made a new sandbox necessary")
	}
}

// Hundreds of commands at once, each with its own arguments, environment, input,
// output and folder, through few ready sandboxes and many new ones.
func TestParallelCommandsAreNeverMixedUp(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: 4})
	ws := workspace(t)
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	prepare(t, l, p)
	tokens := make(chan struct{}, 12)
	var all sync.WaitGroup
	for i := range 300 {
		tokens <- struct{}{}
		all.Go(func() {
			defer func() { <-tokens }()
			id := fmt.Sprintf("id-%d", i)
			dir := filepath.Join(ws, id)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Error(err)
				return
			}
			in, feed, err := os.Pipe()
			if err != nil {
				t.Error(err)
				return
			}
			_, _ = io.WriteString(feed, "in-"+id)
			feed.Close()
			out, err := runCommand(t, l, p, Command{
				Argv: []string{"sh", "-c", `echo $0 $ID $(cat) $PWD; echo $ID >&2; echo $ID > file; exit $CODE`, id},
				Env:  []string{"ID=" + id, fmt.Sprintf("CODE=%d", i%200)}, Dir: dir, Stdin: in,
			})
			in.Close()
			want := fmt.Sprintf("%s %s in-%s %s\n", id, id, id, dir)
			if err != nil || out.stdout != want || out.stderr != id+"\n" || out.ExitCode != i%200 {
				t.Errorf("%s: %+v, %v", id, out, err)
			}
			if b, err := os.ReadFile(dir + "/file"); err != nil || string(b) != id+"\n" {
				t.Errorf("%s: file %q, %v", id, b, err)
			}
		})
	}
	all.Wait()
	if s := l.Stats(); s.Warm+s.Cold != 301 {
		t.Errorf("%+v; want 301 starts in all", s)
	}
}

func TestReadySandboxTakesNoSecondCommand(t *testing.T) {
	l := newLauncher(t, Options{})
	proc, r := startPiped(t, l, Policy{Mode: ReadOnly}, "echo up; exec sleep 1000")
	readLine(t, r)
	second := &run{argv: []string{"/bin/sh", "-c", "echo second; kill -9 -1"}, env: []string{}, dir: "/"}
	for _, kind := range []byte{msgRun, msgGo, msgFork, msgReady, msgExit} {
		if err := proc.ctl.send(kind, second.encode(), 0, 1, 2); err != nil {
			t.Fatal(err)
		}
	}
	if err := proc.Signal(unix.SIGTERM); err != nil { // is obeyed after the others
		t.Fatal(err)
	}
	if res, err := proc.Wait(); err != nil || res.Signal != unix.SIGTERM {
		t.Errorf("%+v, %v; want the first command to go on until SIGTERM", res, err)
	}
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 {
		t.Errorf("printed %q, %v", rest, err)
	}
}

func TestDeadReadySandboxDoesNotFailAStart(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	for _, p := range []Policy{{Mode: ReadOnly}, {Mode: FullAccess}} {
		prepare(t, l, p)
		l.pool.mu.Lock()
		for _, w := range l.pool.shelves[policyKey(p)].ready {
			if err := unix.Kill(w.proc.pid, unix.SIGKILL); err != nil {
				t.Error(err)
			}
			<-w.proc.gone
		}
		l.pool.mu.Unlock()
		if out := runShell(t, l, p, "echo alive"); out.stdout != "alive\n" {
			t.Errorf("%v: %+v", p.Mode, out)
		}
	}
}

func TestIdleSandboxesAndTheirPlacesGo(t *testing.T) {
	l := newLauncher(t, Options{WarmIdle: 50 * time.Millisecond})
	ws := workspace(t)
	if err := runOnce(l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}}); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of idle sandboxes", func() bool {
		l.mu.Lock()
		running := len(l.running)
		l.mu.Unlock()
		left, err := os.ReadDir(ws)
		l.pool.mu.Lock()
		defer l.pool.mu.Unlock()
		return running == 0 && len(l.pool.shelves) == 0 && err == nil && len(left) == 0
	})
}

func TestReadySandboxesAreBounded(t *testing.T) {
	l := newLauncher(t, Options{WarmTotal: 2})
	var policies []Policy
	for range 4 {
		policies = append(policies, Policy{Mode: WorkspaceWrite, Roots: []string{workspace(t)}})
	}
	for _, p := range policies {
		prepare(t, l, p)
		if s := l.Stats(); s.Ready > 2 {
			t.Errorf("%d sandboxes are ready, want 2 at most", s.Ready)
		}
	}
	if warm, _ := starts(l, func() { _ = runOnce(l, policies[3]) }); warm != 1 {
		t.Error("the policy that was used last has no sandbox")
	}
	if warm, _ := starts(l, func() { _ = runOnce(l, policies[0]) }); warm != 0 {
		t.Error("the policy that was used first still had a sandbox")
	}
}

func TestFailedRefillIsCountedAndNotRepeatedAtOnce(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := filepath.Join(workspace(t), "ws")
	if err := os.Mkdir(ws, 0o755); err != nil {
		t.Fatal(err)
	}
	l.pool.making.Lock() // the workspace goes before the next sandbox is made
	proc, err := l.Start(t.Context(), Policy{Mode: WorkspaceWrite, Roots: []string{ws}, ProtectedNames: []string{}}, Command{Argv: []string{"true"}})
	if err == nil {
		err = os.Remove(ws)
	}
	l.pool.making.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	_, _ = proc.Wait()
	await(t, "a failure", func() bool { return l.Stats().Failed > 0 })
	l.pool.mu.Lock()
	defer l.pool.mu.Unlock()
	for _, s := range l.pool.shelves {
		if s.retry < firstRetry || !s.fillAt.After(s.used) {
			t.Errorf("the next try is at %v, %v after the last; want a pause", s.fillAt, s.retry)
		}
	}
}

// poolMountName is the argv[0] of a daemon in a mount namespace of its own.
const poolMountName = "sandbox-test-pool-mounts"

// poolMountMain mounts something over a folder that a ready sandbox has seen. It
// prints what commands find there.
func poolMountMain(dir string) {
	die := func(err error) {
		if err != nil {
			fmt.Println(err)
			unix.Exit(1)
		}
	}
	die(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	die(unix.Mount("none", dir, "tmpfs", 0, ""))
	die(os.WriteFile(dir+"/file", []byte("below\n"), 0o644))
	l, err := NewLauncher(Options{})
	die(err)
	show := func() {
		p, err := l.Start(noContext, Policy{Mode: ReadOnly}, Command{Argv: []string{"cat", dir + "/file"}, Stdout: os.Stdout})
		die(err)
		_, err = p.Wait()
		die(err)
	}
	ready := func() {
		for l.Stats().Ready == 0 {
			_, _ = unix.Poll(nil, 1)
		}
	}
	show()
	ready()
	show()
	ready()
	l.pool.making.Lock() // so that no sandbox is made after the change and before the command
	die(unix.Mount("none", dir, "tmpfs", 0, ""))
	die(os.WriteFile(dir+"/file", []byte("mounted\n"), 0o644))
	show()
	l.pool.making.Unlock()
	ready()
	l.pool.making.Lock()
	die(unix.Unmount(dir, 0))
	show()
	l.pool.making.Unlock()
	s := l.Stats()
	fmt.Println("warm", s.Warm, "cold", s.Cold)
	die(l.Close())
	unix.Exit(0)
}

func TestMountsOfTheHostAreNoticed(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts cannot be made without root")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{poolMountName, "/mnt"} // a folder of every system
	cmd.SysProcAttr = &unix.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if want := "below\nbelow\nmounted\nbelow\nwarm 1 cold 3\n"; err != nil || string(out) != want {
		t.Errorf("%q, %v; want %q", out, err, want)
	}
}

func TestPoolLeaksNothing(t *testing.T) {
	ws := workspace(t)
	first := newLauncher(t, Options{})
	prepare(t, first, Policy{Mode: ReadOnly}) // what the runtime opens once
	first.Close()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	files, procs := openFiles(t), children(t)
	l, err := NewLauncher(Options{AllowFullAccess: true, WarmTotal: 5})
	if err != nil {
		t.Fatal(err)
	}
	policies := []Policy{{Mode: WorkspaceWrite, Roots: []string{ws}}, {Mode: ReadOnly}, {Mode: FullAccess}, {Mode: ReadOnly, Roots: []string{ws}}}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			if err := runOnce(l, policies[i%len(policies)]); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 20 {
		c := Command{Argv: []string{"no-such-program"}}
		if _, err := l.Start(t.Context(), policies[i%len(policies)], c); err == nil {
			t.Error("a program that does not exist was started")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if n := openFiles(t); n > files {
		t.Errorf("%d descriptors are open, %d were before", n, files)
	}
	if n := children(t); n > procs {
		t.Errorf("%d children are left, %d were before", n, procs)
	}
	if left, err := os.ReadDir(ws); err != nil || len(left) != 0 {
		t.Errorf("left in the workspace: %v, %v", left, err)
	}
	if now, err := os.ReadFile("/proc/self/mountinfo"); err != nil || !slices.Equal(now, mounts) {
		t.Errorf("the mounts have changed, %v", err)
	}
}
