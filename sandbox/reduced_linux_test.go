package sandbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// newReduced makes a launcher of the reduced level, a place that its commands can see,
// and a root in it that belongs to them.
func newReduced(t *testing.T, o Options) (l *Launcher, base, ws string) {
	t.Helper()
	if v := landlockVersion(); v < reducedLandlock {
		t.Skipf("needs Landlock version %d, the kernel has %d", reducedLandlock, v)
	}
	base = outsideTmp(t)
	ws = filepath.Join(base, "ws")
	if err := errors.Join(os.Chmod(base, 0o755), os.Mkdir(ws, 0o755)); err != nil {
		t.Fatal(err)
	}
	o.Reduced = true
	l = newLauncher(t, o)
	if err := os.Chown(ws, l.id.uid, -1); err != nil {
		t.Fatal(err)
	}
	return l, base, ws
}

func TestReducedLevelWritesToItsPlacesOnly(t *testing.T) {
	l, base, ws := newReduced(t, Options{})
	stranger := filepath.Join(base, "file")
	if err := errors.Join(os.WriteFile(stranger, []byte("before"), 0o666), os.Chmod(stranger, 0o666)); err != nil {
		t.Fatal(err)
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	out := runShell(t, l, p, tryFunction+`
		id -u; pwd
		try "echo x > f"; try "echo x > $HOME/f"; try "echo x > $TMPDIR/f"; try "echo x > /dev/null"
		try "echo x > `+stranger+`"; try "echo x > ../new"; try "echo x > /tmp/sandbox-check-reduced"; try "ls /tmp"
		cat `+stranger+`; echo; echo $HOME
		mkdir $HOME/closed; : > $HOME/closed/f; chmod 0 $HOME/closed`)
	lines := strings.Split(strings.TrimSpace(out.stdout), "\n")
	home := lines[len(lines)-1]
	want := fmt.Sprintf("%d\n%s\ndid\ndid\ndid\ndid\nrefused\nrefused\nrefused\nrefused\nbefore\n%s\n", l.id.uid, ws, home)
	if out.stdout != want || l.id.uid == 0 {
		t.Errorf("got %q, want %q (%q)", out.stdout, want, out.stderr)
	}
	if b, err := os.ReadFile(stranger); err != nil || string(b) != "before" {
		t.Errorf("the file outside is %q, %v", b, err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Dir(home)); !errors.Is(err, os.ErrNotExist) || !strings.HasSuffix(home, "/home") {
		t.Errorf("the private folder of %q is still there: %v", home, err)
	}
	l, _, ws = newReduced(t, Options{})
	if out := runShell(t, l, Policy{Mode: ReadOnly, Roots: []string{ws}}, tryFunction+`try "echo x > n"`); out.stdout != "refused\n" {
		t.Errorf("read-only: %+v", out)
	}
}

func TestReducedLevelHidesPathsAndReadsTheRest(t *testing.T) {
	l, base, ws := newReduced(t, Options{})
	for _, d := range []string{"state", "other"} {
		path := filepath.Join(base, d)
		if err := errors.Join(os.Mkdir(path, 0o755), os.WriteFile(path+"/f", []byte("text of "+d), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{base + "/state"}}
	for _, view := range []View{ViewFull, ViewMinimal} {
		p.View, p.ReadRoots = view, []string{base + "/other"}
		out := runShell(t, l, p, "cd "+base+"; cat state/f; ls state; cat other/f; test -r /usr/bin/env && echo; cat /etc/passwd | wc -l | grep -v '^0$' > /dev/null && echo read")
		if out.stdout != "text of other\nread\n" {
			t.Errorf("view %d: %q %q", view, out.stdout, out.stderr)
		}
	}
}

func TestReducedLevelKeepsCommandsOutOfEachOthersFolders(t *testing.T) {
	l, base, _ := newReduced(t, Options{})
	t.Setenv("TMPDIR", base) // elsewhere than usual
	proc, r := startPiped(t, l, Policy{Mode: ReadOnly}, "echo x > $HOME/f; echo $HOME; exec sleep 1000")
	home := readLine(t, r)
	out := runShell(t, l, Policy{Mode: ReadOnly}, tryFunction+`try "cat `+home+`/f"; try "ls `+home+`"; try "echo x > `+home+`/g"; try "echo x > $HOME/f && cat $HOME/f"`)
	if out.stdout != "refused\nrefused\nrefused\ndid\n" || !strings.HasPrefix(home, base) {
		t.Errorf("%q %q", out.stdout, out.stderr)
	}
	if err := proc.Kill(); err != nil {
		t.Error(err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Error(err)
	}
}

func TestReducedLevelRefusesWhatItCannotDo(t *testing.T) {
	l, base, ws := newReduced(t, Options{})
	if err := errors.Join(os.Mkdir(ws+"/secret", 0o755), os.Symlink("ws", base+"/link")); err != nil {
		t.Fatal(err)
	}
	policies := map[string]Policy{
		"inside a root": {Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{ws + "/secret"}},
		"in hidden":     {Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{base}},
		"no sockets":    {Mode: ReadOnly, UnixSockets: []string{"/run/x"}},
		"too many":      {Mode: WorkspaceWrite, Roots: []string{base + "/link"}},
		"not a sandbox": {},
	}
	if os.Getuid() == 0 {
		if err := os.Mkdir(base+"/foreign", 0o777); err != nil {
			t.Fatal(err)
		}
		policies["cannot map owners"] = Policy{Mode: WorkspaceWrite, Roots: []string{base + "/foreign"}}
	}
	for want, p := range policies {
		if _, err := l.Start(t.Context(), p, Command{Argv: []string{"true"}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q in it", err, want)
		}
	}
}

func TestReducedLevelHasNoWayOutOfItsProcesses(t *testing.T) {
	l, base, ws := newReduced(t, Options{})
	_, program := probe(t)
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(base, probeName), text, 0o755); err != nil {
		t.Fatal(err)
	}
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	other := exec.Command("/bin/sleep", "100")
	if l.id.asRoot {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(l.id.uid), Gid: uint32(l.id.gid)}}
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pid := strconv.Itoa(other.Process.Pid)
	for _, c := range []struct{ args, want string }{
		{"dial tcp " + host.Addr().String(), "EPERM"},
		{"socket 1 1 0", "EPERM"},
		{"socket 16 3 0", "EPERM"},
		{"pair 1 1", "OK"},
		{"pair 1 2", "EPERM"},
		{"pair 30 1", "EPERM"},
		{"shm 1", "EPERM"},
		{"kill " + pid, "EPERM"},
		{"kill " + strconv.Itoa(os.Getpid()), "EPERM"},
		{"kill-parent", "EPERM"},
		{"limit-of " + pid, "EPERM"},
		{"limit-of 0", "OK"},
		{"ptrace " + pid, "EPERM"},
		{"unshare", "EPERM"},
		{"io_uring", "ENOSYS"},
		{"setuid", "EPERM"},
		{"listen", "EPERM"},
	} {
		out, err := runCommand(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}}, Command{Argv: append([]string{filepath.Join(base, probeName)}, strings.Fields(c.args)...), Arg0: probeName})
		if got := strings.TrimSpace(out.stdout); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %s", c.args, got, err, c.want)
		}
	}
	if st, ok := procStat(other.Process.Pid); !ok || st.state == 'Z' {
		t.Error("a process of the same user was killed")
	}
	out := runShell(t, l, Policy{Mode: ReadOnly}, "cat /proc/"+pid+"/environ || echo refused")
	if out.stdout != "refused\n" {
		t.Errorf("environment of another process: %q", out.stdout)
	}
}

func TestReducedLevelEndsTheWholeTree(t *testing.T) {
	l, _, _ := newReduced(t, Options{})
	p := Policy{Mode: ReadOnly}
	proc, r := startPiped(t, l, p, stubbornTree+"exit 5")
	readLine(t, r)
	if res, err := proc.Wait(); err != nil || res.ExitCode != 5 || res.Strays < 1 {
		t.Errorf("%+v, %v; want code 5 and strays", res, err)
	}
	if _, err := io.ReadAll(r); err != nil { // ends with the last process
		t.Error(err)
	}
	proc, r = startPiped(t, l, p, stubbornTree+"sleep 1000")
	readLine(t, r)
	if err := proc.Kill(); err != nil {
		t.Error(err)
	}
	if res, err := proc.Wait(); err != nil || res.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v; want SIGKILL", res, err)
	}
	if _, err := io.ReadAll(r); err != nil {
		t.Error(err)
	}
	proc, r = startTerminal(t, l, p, "tty < /dev/tty; exec sleep 1000")
	if s := readLine(t, r); !strings.HasPrefix(s, "/dev/") {
		t.Errorf("terminal %q", s)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if res, err := proc.Wait(); err != nil || res.Signal != syscall.SIGKILL {
		t.Errorf("%+v, %v; want SIGKILL", res, err)
	}
}

func TestReducedLevelIsToldAndHasLimits(t *testing.T) {
	l, _, _ := newReduced(t, Options{})
	if got := newLauncher(t, Options{}).Level() + " " + l.Level(); got != "complete reduced" {
		t.Errorf("levels %q", got)
	}
	if r := Probe(t.Context(), Options{Reduced: true}); !r.OK() || r.Layers[2].Name != "reduced sandbox" {
		t.Errorf("%+v", r)
	}
	out := runShell(t, l, Policy{Mode: ReadOnly, Limits: Limits{OpenFiles: 200}}, "ulimit -n; grep -E '^(NoNewPrivs|Seccomp|CapEff):' /proc/self/status")
	if f := strings.Fields(out.stdout); strings.Join(f, " ") != "200 CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2" {
		t.Errorf("%q", out.stdout)
	}
}

// TestReducedLevelKeepsItsPromisesToAnOrdinaryUser runs the others again as such a user.
func TestReducedLevelKeepsItsPromisesToAnOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become another user; the other tests run as this one")
	}
	if v := landlockVersion(); v < reducedLandlock {
		t.Skipf("needs Landlock version %d, the kernel has %d", reducedLandlock, v)
	}
	const nobody = 65534
	base := checksBase(t)
	dir := filepath.Join(base, "user")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(base, "bin", probeName))
	cmd.Args = []string{"sandbox.test", "-test.run=^TestReduced", "-test.v"}
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + defaultPath, "HOME=" + dir}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestReducedLevelEndsTheWholeTree") {
		t.Errorf("%v\n%s", err, out)
	}
}

// A command that got no network instead would take what it cannot reach for down.
func TestReducedLevelRefusesNetworks(t *testing.T) {
	l, _, ws := newReduced(t, Options{})
	for _, n := range []Network{{Mode: NetworkProxy}, {Mode: NetworkHost}, {Session: "s"}} {
		var failed *SetupError
		if _, err := l.Start(noContext, Policy{Mode: WorkspaceWrite, Roots: []string{ws}, Network: n}, Command{Argv: []string{"true"}}); !errors.As(err, &failed) || failed.Stage != "policy" {
			t.Errorf("%+v: %v, want a refusal of the policy", n, err)
		}
	}
}

func TestPrivateFolderIsRemovedWhateverTheCommandDidToIt(t *testing.T) {
	dir := t.TempDir() + "/private"
	odd := dir + "/home/\xff"
	if err := os.MkdirAll(odd+"/x/y", 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{odd + "/x", odd, dir} {
		if err := os.Chmod(d, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := removePrivate(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder after its removal: %v", err)
	}
}
