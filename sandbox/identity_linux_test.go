package sandbox

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

func TestCommandsAreNeverTheHostsRoot(t *testing.T) {
	l := newLauncher(t, Options{})
	out := runShell(t, l, Policy{Mode: ReadOnly}, "id -u; id -un; id -gn; cat /proc/self/uid_map; cat /etc/shadow 2>/dev/null; echo end")
	f := strings.Fields(out.stdout)
	uid := os.Getuid()
	if uid == 0 {
		uid = defaultUID
	}
	if len(f) != 7 || f[0] != strconv.Itoa(uid) || f[0] == "0" || f[1] == strconv.Itoa(uid) || f[3] != f[0] || f[4] != f[0] || f[5] != "1" {
		t.Errorf("identity: %q %q, want uid %d with a name, mapped to itself alone", out.stdout, out.stderr, uid)
	}
}

func TestRootDaemonChoosesTheIdentity(t *testing.T) {
	if os.Getuid() != 0 {
		if _, err := NewLauncher(Options{UID: os.Getuid() + 1}); err == nil {
			t.Error("an ordinary user got another identity")
		}
		t.Skip("the rest needs root")
	}
	l := newLauncher(t, Options{UID: 4321, GID: 8765})
	ws := workspace(t)
	out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}}, "id -u; id -g; id -G; echo x > f; stat -c %u:%g f")
	if out.stdout != "4321\n8765\n8765\n4321:8765\n" {
		t.Errorf("%q %q", out.stdout, out.stderr)
	}
	if err := os.Chown(ws, 4321, 8765); err != nil {
		t.Fatal(err)
	}
	if out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{ws}}, "echo y > g && stat -c %u g"); out.stdout != "4321\n" {
		t.Errorf("a workspace of the command's own uid: %q %q", out.stdout, out.stderr)
	}
	if _, err := NewLauncher(Options{UID: -1}); err == nil {
		t.Error("a negative uid was accepted")
	}
}

func TestRootBelowAClosedFolderKeepsItsPath(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: an ordinary user has no folder closed to himself")
	}
	l := newLauncher(t, Options{})
	closed := outsideTmp(t)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"/a", "/a/ws", "/other"} {
		if err := os.Mkdir(closed+d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	out := runShell(t, l, Policy{Mode: WorkspaceWrite, Roots: []string{closed + "/a/ws"}}, "pwd; echo x > f; ls "+closed+"; touch ../g")
	if out.stdout != closed+"/a/ws\na\n" || !strings.Contains(out.stderr, "Read-only") {
		t.Errorf("%q %q", out.stdout, out.stderr)
	}
	if _, err := os.Stat(closed + "/a/ws/f"); err != nil {
		t.Error(err)
	}
}

func TestAccountFilesNameTheCommand(t *testing.T) {
	const file = "root:x:0:0:root:/root:/bin/bash\npostern:x:998:998::/var/lib/postern:/sbin/nologin\nalice:x:1000:1000::/home/alice:/bin/zsh"
	for _, c := range []struct {
		uid  int
		name string
	}{{1000, "alice"}, {60777, "postern-1"}, {998, "postern"}} {
		name := accountName(file, c.uid)
		if name != c.name {
			t.Errorf("name of %d is %q, want %q", c.uid, name, c.name)
		}
		got := replaceAccount(file, c.uid, name, name+":x:"+strconv.Itoa(c.uid)+":1::/h:/bin/sh")
		if n := strings.Count("\n"+got, "\n"+name+":"); n != 1 || field(findAccount(got, c.uid), 5) != "/h" || field(findAccount(got, 0), 0) != "root" {
			t.Errorf("accounts for %d:\n%s", c.uid, got)
		}
	}
}

func TestFullAccessIsTheDaemonItself(t *testing.T) {
	l := newLauncher(t, Options{AllowFullAccess: true})
	out := runShell(t, l, Policy{Mode: FullAccess}, "id -u; echo $HOME; grep -c . /proc/1/status; grep NoNewPrivs /proc/self/status")
	f := strings.Fields(out.stdout)
	if len(f) < 4 || f[0] != strconv.Itoa(os.Getuid()) || f[1] == homeDir || f[len(f)-1] != "0" {
		t.Errorf("full access: %q %q", out.stdout, out.stderr)
	}
}

func TestProbeTriesEveryLayer(t *testing.T) {
	r := Probe(t.Context(), Options{})
	if !r.OK() {
		t.Errorf("probe on a machine where the other tests pass: %+v", r)
	}
	if (Report{}).OK() {
		t.Error("an empty report is OK")
	}
	bad := Probe(t.Context(), Options{UID: -1})
	if bad.OK() || bad.Layers[0].Reason == "" {
		t.Errorf("probe with bad options: %+v", bad)
	}
}
