//go:build linux

package main

import (
	"bytes"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// The deployment of README.md works as it stands there: only addresses, folders and the keys that it leaves
// out are put in, and the command to run.
func TestDeploymentOfTheReadmeWorksAsWritten(t *testing.T) {
	t.Parallel()
	needSandbox(t)
	_, text, found := strings.Cut(readText(t, "README.md"), "\n## A real deployment\n")
	if !found {
		t.Fatal("README.md has no deployment")
	}
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := codeBlocks(text)
	if len(blocks) != 5 {
		t.Fatalf("the deployment has %d blocks, want relay, executor, client, lists and use", len(blocks))
	}
	d := newDeployment(t)
	d.replace(":4433", d.address, "relay.example.org:4433", d.address, "/var/lib/", d.dir+"/", "/srv/", d.dir+"/", "make -j4", "cat Makefile")
	url := d.serve(blocks[0])
	d.replace("postern://"+d.address+"#relay_...", url)
	d.replace("exec_...", d.serve(blocks[1]))
	d.replace("client_...", strings.TrimSpace(d.run(blocks[2])))
	d.run(blocks[3])
	build, use, _ := strings.Cut(blocks[4], "\n")
	if !eventually(func() bool { return d.shell("postern exec builder -- true").Run() == nil }) {
		t.Fatalf("the executor never gets reachable:\n%s", d.log.String())
	}
	if got := d.run(build); got != "all:\n" {
		t.Errorf("%s printed %q, want the Makefile of the workspace", build, got)
	}
	untar, _, _ := strings.Cut(use, "\n")
	d.run(untar)
	if b, err := os.ReadFile(filepath.Join(d.dir, "build/src/main.c")); err != nil || string(b) != "source\n" {
		t.Errorf("after %s the workspace has %q, %v", untar, b, err)
	}
}

// deployment is a machine for all three parties, in a folder.
type deployment struct {
	t        *testing.T
	dir      string
	address  string
	replacer []string
	log      lockedBuffer // of both daemons
}

func newDeployment(t *testing.T) *deployment {
	t.Helper()
	free, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	d := &deployment{t: t, dir: t.TempDir(), address: free.LocalAddr().String()}
	for path, content := range map[string]string{"build/Makefile": "all:\n", "home/src/main.c": "source\n"} {
		path = filepath.Join(d.dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// replace adds pairs of what stands in the README and what is meant here; later ones see the
// result of the earlier.
func (d *deployment) replace(pairs ...string) { d.replacer = append(d.replacer, pairs...) }

// shell runs lines of the README in the home folder.
func (d *deployment) shell(lines string) *exec.Cmd {
	for pair := range slices.Chunk(d.replacer, 2) {
		if pair[0] == ":4433" { // only where no host stands before it
			lines = strings.ReplaceAll(lines, " :4433", " "+pair[1])
			continue
		}
		lines = strings.ReplaceAll(lines, pair[0], pair[1])
	}
	cmd := exec.Command("sh", "-ec", lines)
	cmd.Dir = filepath.Join(d.dir, "home")
	cmd.Env = append(os.Environ(), "HOME="+cmd.Dir, "XDG_CONFIG_HOME=", "POSTERN_HOME=", "GORACE="+raceOptions())
	return cmd
}

// run runs lines that end, and is what they print.
func (d *deployment) run(lines string) string {
	d.t.Helper()
	cmd := d.shell(lines)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		d.t.Fatalf("%s: %v: %s\n%s", lines, err, stderr.String(), d.log.String())
	}
	return string(out)
}

// serve runs a daemon's lines until the test ends, and is the daemon's first line.
func (d *deployment) serve(lines string) string {
	d.t.Helper()
	cmd := d.shell("exec " + strings.TrimSpace(lines))
	line := make(chan string, 1)
	cmd.Stdout, cmd.Stderr = &firstLine{Writer: io.Discard, line: line}, &d.log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case first := <-line:
		d.t.Cleanup(func() {
			_ = cmd.Process.Signal(syscall.SIGTERM) // its end shows whether it arrived
			if err := <-ended; err != nil {
				d.t.Errorf("on TERM: %v\n%s", err, d.log.String())
			}
		})
		return first
	case err := <-ended:
		d.t.Fatalf("%s: %v\n%s", lines, err, d.log.String())
		return ""
	}
}

// lockedBuffer may be read while a process writes to it.
type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
