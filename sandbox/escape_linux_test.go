package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestRefusedSystemCallsStayRefused makes each call in one shared policy; all of
// them would do harm, or open the way to it.
func TestRefusedSystemCallsStayRefused(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	for _, c := range []struct{ args, want string }{
		{"ptrace 1", "EPERM"},
		{"vmread 1", "EPERM"},
		{"pidfd-getfd 1", "EPERM"},
		{"mount", "EPERM"},
		{"remount", "EPERM"},
		{"umount " + ws + "/.git", "EPERM"},
		{"fsopen", "EPERM"},
		{"open_tree", "EPERM"},
		{"mount_setattr", "EPERM"},
		{"chroot", "EPERM"},
		{"pivot_root", "EPERM"},
		{"handle", "EPERM"},
		{"unshare", "EPERM"},
		{"clone", "EPERM"},
		{"clone3", "ENOSYS"},
		{"setns", "EPERM"},
		{"io_uring", "ENOSYS"},
		{"bpf", "EPERM"},
		{"perf", "EPERM"},
		{"userfaultfd", "EPERM"},
		{"add_key", "EPERM"},
		{"module", "EPERM"},
		{"kexec", "EPERM"},
		{"settime", "EPERM"},
		{"hostname", "EPERM"},
		{"syslog", "EPERM"},
		{"fanotify", "EPERM"},
		{"personality", "EPERM"},
		{"tiocsti", "EPERM"},
		{"tiocsti high", "EPERM"},
		{"setuid", "EINVAL"},
		{"scheduler", "EPERM"},
		{"mknod " + ws + "/d", "EPERM|EACCES"},
		{"create-setuid " + ws + "/s", "EPERM\nENOSYS\nENOENT|EPERM\nENOSYS\nEPERM"},
		{"socket 40 1 0", "EAFNOSUPPORT"},
		{"socket 17 3 0", "EAFNOSUPPORT"},
		{"socket 38 5 0", "EAFNOSUPPORT"},
		{"socket 2 3 1", "EPERM"},
		{"socket 10 3 58", "EPERM"},
		{"socket 16 3 9", "EAFNOSUPPORT"},
		{"socket 16 3 12", "EAFNOSUPPORT"},
		{"socket 16 3 0", "OK"},
		{"socket 1 1 0", "OK"},
		{"socket 2 1 0", "OK"},
	} {
		got := runProbe(t, l, p, strings.Fields(c.args)...)
		if !strings.Contains("|"+c.want+"|", "|"+got+"|") {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}

// TestFilesOutsideTheRootsStayAsTheyAre tries the ways to write elsewhere; the host
// looks afterwards.
func TestFilesOutsideTheRootsStayAsTheyAre(t *testing.T) {
	l := newLauncher(t, Options{})
	ws := workspace(t)
	outside, err := os.MkdirTemp("/var/tmp", "outside") // hidden by the private /var/tmp
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outside) })
	file := filepath.Join(outside, "file")
	if err := os.WriteFile(file, []byte("before"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(ws, "sub"), 0o777); err != nil {
		t.Fatal(err)
	}
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}}
	for _, script := range []string{
		"echo x > " + file,
		"echo x > /etc/sandbox-test; echo x > /sandbox-test; echo x > /usr/sandbox-test",
		"cd sub && echo x > ../../../.." + file,
		"ln -s " + file + " l && echo x > l",
		"ln " + file + " h && echo x > h",
		"echo x > /proc/1/root" + file + "; echo x > /proc/self/root" + file + "; echo x > /proc/self/cwd/../../.." + file,
		"echo x > /sys/power/state; echo x > /proc/sys/vm/drop_caches; echo b > /proc/sysrq-trigger; echo x > /proc/sys/kernel/core_pattern",
		"mkdir /sys/fs/cgroup/sandbox-test; echo x > /sys/fs/cgroup/memory/release_agent",
		"mv " + ws + " " + ws + "2 2>/dev/null || exit 1",
		"printf x > /proc/1/exe",
		"echo x > /dev/vda; echo x > /dev/kmsg; echo x > /dev/tty",
	} {
		if out := runShell(t, l, p, "exec 2>/dev/null; "+script+"; test -e /etc/sandbox-test"); out.ExitCode == 0 {
			t.Errorf("%s: reported success", script)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "before" {
		t.Errorf("file outside is %q, %v; want it untouched", b, err)
	}
	for _, f := range []string{"/etc/sandbox-test", "/sandbox-test", "/usr/sandbox-test"} {
		if _, err := os.Lstat(f); err == nil {
			t.Errorf("%s exists on the host", f)
		}
	}
}

func TestProcessesOfTheHostAreOutOfReach(t *testing.T) {
	l := newLauncher(t, Options{})
	p := Policy{Mode: ReadOnly}
	out := runShell(t, l, p, "kill -9 "+strconv.Itoa(os.Getpid())+" 2>/dev/null && test "+strconv.Itoa(os.Getpid())+" -gt 100 && echo killed; ls -d /proc/[0-9]* | wc -l")
	if n, err := strconv.Atoi(strings.TrimSpace(out.stdout)); err != nil || n > 5 {
		t.Errorf("the command sees %q processes, want its own few", out.stdout)
	}
	out = runShell(t, l, p, "kill -9 1; kill -TERM 1; kill -SEGV 1; kill -INT 1; kill -PIPE 1; cat /proc/1/environ /proc/1/maps; ls -l /proc/1/fd; readlink /proc/1/exe; echo still")
	if out.stdout != "still\n" || out.ExitCode != 0 {
		t.Errorf("the init can be ended or read from inside: %q %+v", out.stdout, out.Result)
	}
	if got := runProbe(t, l, p, "shm", "1"); got != "ENOENT" {
		t.Errorf("System V memory of the host: %s, want ENOENT", got)
	}
}

func TestNetworkIsTheOwnLoopbackOnly(t *testing.T) {
	host, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	l := newLauncher(t, Options{})
	p := Policy{Mode: WorkspaceWrite}
	abstract, err := net.Listen("unix", "@sandbox-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"dial", "tcp", host.Addr().String()}, "ECONNREFUSED"},
		{[]string{"dial", "tcp", "192.0.2.1:80"}, "ENETUNREACH"},
		{[]string{"dial", "tcp", "169.254.169.254:80"}, "ENETUNREACH"},
		{[]string{"dial", "udp", "192.0.2.53:53"}, "ENETUNREACH"},
		{[]string{"dial", "unix", abstract.Addr().String()}, "ECONNREFUSED"},
		{[]string{"listen"}, "OK"},
		{[]string{"interfaces"}, "lo OK"},
	} {
		if got := runProbe(t, l, p, c.args...); got != c.want {
			t.Errorf("%v: %s, want %s", c.args, got, c.want)
		}
	}
}

// outsideTmp makes a directory that the private /tmp does not cover.
func outsideTmp(t *testing.T) string {
	t.Helper()
	cwd, _ := os.Getwd()
	for _, parent := range []string{cwd, os.Getenv("HOME"), "/srv"} {
		private := false
		for _, d := range []string{"/tmp", "/var/tmp", "/run", "/dev"} {
			private = private || within(parent, d)
		}
		if private || parent == "" {
			continue
		}
		if dir, err := os.MkdirTemp(parent, "sandbox-test"); err == nil {
			t.Cleanup(func() { os.RemoveAll(dir) })
			return dir
		}
	}
	t.Skip("needs a working directory, HOME or /srv that is writable and not below /tmp")
	return ""
}

// TestFIFOOutsideIsNotWritable needs Landlock: a read-only mount lets FIFOs through.
func TestFIFOOutsideIsNotWritable(t *testing.T) {
	l := newLauncher(t, Options{})
	dir := outsideTmp(t)
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if got := runProbe(t, l, Policy{Mode: ReadOnly, Roots: []string{dir}}, "fifo", fifo); got != "EACCES" {
		t.Errorf("FIFO in a read-only root: %s, want EACCES", got)
	}
	if got := runProbe(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{dir}}, "fifo", fifo); got != "OK" {
		t.Errorf("FIFO in a writable root: %s, want OK", got)
	}
}

func TestHiddenPathsCannotBeReadOrMoved(t *testing.T) {
	dir := workspace(t)
	for _, d := range []string{"state", "ws", "ws/secret"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"state/key", "ws/secret/key", "ws/token"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("SECRET"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "state"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(t, Options{HiddenPaths: []string{filepath.Join(dir, "link"), filepath.Join(dir, "missing")}})
	ws := filepath.Join(dir, "ws")
	// the parent is a root too, so that the way to the hidden state exists at all
	p := Policy{Mode: WorkspaceWrite, Roots: []string{dir, ws}, HiddenPaths: []string{ws + "/secret", ws + "/token"}}
	out := runShell(t, l, p, "cd "+dir+"; cat state/key link/key ws/secret/key ws/token; ls state ws/secret; mv state s2; mv ws/token t2; chmod 755 state; ls /run; echo end")
	if strings.Contains(out.stdout, "SECRET") || out.stdout != "postern\nend\n" {
		t.Errorf("hidden paths leak: %q", out.stdout)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "state/key")); err != nil || string(b) != "SECRET" {
		t.Errorf("hidden file changed on the host: %q, %v", b, err)
	}
}
