package sandbox

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMinimalViewShowsTheSystemAndTheRootsOnly(t *testing.T) {
	ws, extra := workspace(t), workspace(t)
	if err := os.WriteFile(filepath.Join(extra, "seen"), []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(extra, 0o755); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(t, Options{})
	p := Policy{Mode: WorkspaceWrite, Roots: []string{ws}, View: ViewMinimal, ReadRoots: []string{extra}}
	out := runShell(t, l, p, `
		ls /home /root /srv /opt /mnt 2>/dev/null | grep -v :
		ls /var
		echo x > file && cat file
		cat `+extra+`/seen; echo
		echo y > `+extra+`/new || echo refused
		echo z > /home/new || echo refused
		echo z > /var/lib/new || echo refused
		echo t > /var/tmp/t && echo tmp
		ls /usr/bin/env`)
	want := "cache\nlib\nlog\ntmp\nx\ntext\nrefused\nrefused\nrefused\ntmp\n/usr/bin/env\n"
	if got := strings.TrimLeft(out.stdout, "\n"); got != want {
		t.Errorf("got %q, want %q (stderr %q)", got, want, out.stderr)
	}
	if _, err := os.Stat(filepath.Join(ws, "file")); err != nil {
		t.Errorf("what was written to the root is not on the machine: %v", err)
	}
	if _, err := os.Stat(filepath.Join(extra, "new")); err == nil {
		t.Error("a read root was written")
	}
}

func TestReadRootsGiveNobodyTheRightsOfTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: an ordinary user's commands are that user")
	}
	dir := workspace(t)
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(t, Options{ReadRoots: []string{dir}})
	if out := runShell(t, l, Policy{Mode: ReadOnly}, "cat "+file+" || echo refused"); out.stdout != "refused\n" {
		t.Errorf("got %q", out.stdout)
	}
}

func TestUnixSocketsArePutBackByName(t *testing.T) {
	root, probe := probe(t)
	dir := workspace(t)
	path := filepath.Join(dir, "service.sock")
	host, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	if err := os.Chmod(path, 0o777); err != nil {
		t.Fatal(err)
	}
	dial := Command{Argv: []string{probe, "dial", "unix", path}, Arg0: probeName}
	l := newLauncher(t, Options{})
	for _, c := range []struct {
		sockets []string
		want    string
	}{{nil, "ENOENT"}, {[]string{path}, "OK"}} {
		out, err := runCommand(t, l, Policy{Mode: ReadOnly, Roots: []string{root}, UnixSockets: c.sockets}, dial)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimSpace(out.stdout); got != c.want {
			t.Errorf("sockets %q: dial says %q, want %q", c.sockets, got, c.want)
		}
	}
	_, err = l.Start(noContext, Policy{Mode: ReadOnly, UnixSockets: []string{dir}}, Command{Argv: []string{"true"}})
	if err == nil || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("a folder put back as a socket: %v", err)
	}
}
