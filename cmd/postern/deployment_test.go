//go:build linux

package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/postern-relay/postern/relay/relaytest"
)

// What README.md says of a machine behind NAT works as it stands there: only addresses, folders and the keys that it leaves
// out are put in, and the command to run. The three parties have folders of their own, and nothing in common but the relay's port.
func TestQuickStartOfTheReadmeWorksAsWritten(t *testing.T) {
	t.Parallel()
	needSandbox(t)
	blocks := readmeBlocks(t, "A machine behind NAT", 9)
	d := newDeployment(t)
	d.replace("postern relay --listen :4433", "postern relay --listen "+d.address, "relay.example.org:4433", d.address, "/var/lib/", d.dir+"/", "/srv/", d.dir+"/", "make -j4", "cat Makefile")
	url := d.serve(blocks[0])
	d.replace("postern://"+d.address+"#relay_...", url)
	d.run(blocks[1])

	// The client waits for its admission, and says which key is to be admitted.
	token := d.start(blocks[2])
	key := regexp.MustCompile(`postern tenant add --state DIR TENANT (client_[a-z2-7]+)`)
	if !eventually(func() bool { return key.MatchString(token.stderr.String()) }) {
		t.Fatalf("the client never says what the relay's operator has to do:\n%s", token.stderr.String())
	}
	d.replace("client_...", key.FindStringSubmatch(token.stderr.String())[1])
	d.run(blocks[3])
	text := strings.TrimSpace(token.wait())
	if !strings.HasPrefix(text, "join_") || strings.ContainsAny(text, " \n") {
		t.Fatalf("token new printed %d characters that are no token", len(text))
	}

	executor := d.serve(strings.ReplaceAll(blocks[4], "join_...", text))
	d.use(blocks[5])

	// Nobody wrote a key by hand, and what is pinned is what the executor printed.
	known := readFile(t, filepath.Join(d.dir, "home/.config/postern/known_executors"))
	if want := "builder " + executor + " " + url + "\n"; known != want {
		t.Errorf("known_executors has %q, want %q", known, want)
	}
	for _, file := range []string{"postern-relay/tenants", "postern-relay/enrolled", "postern-executor/relay", "postern-executor/authorized_clients"} {
		if content := readFile(t, filepath.Join(d.dir, file)); strings.Contains(content, text) || strings.Contains(content, "secret") {
			t.Errorf("%s has a secret in it", file)
		}
	}
	if out := d.run("postern executors"); !strings.Contains(out, "builder") || !strings.Contains(out, "online") || !strings.Contains(out, "trusted") {
		t.Errorf("postern executors prints:\n%s", out)
	}
	d.withoutToken(blocks[6:])
}

// withoutToken is the way by hand, with the same relay.
func (d *deployment) withoutToken(blocks []string) {
	executor := d.serve(blocks[0])
	client := strings.TrimSpace(d.run(blocks[1]))
	d.run(strings.NewReplacer("exec_...", executor, "client_...", client).Replace(blocks[2]))
	if !eventually(func() bool { return d.shell("POSTERN_HOME=bob postern exec tester -- true").Run() == nil }) {
		d.t.Errorf("the executor that was listed by hand is never reachable:\n%s", d.log.String())
	}
}

// use runs the commands of the README that use the executor.
func (d *deployment) use(block string) {
	d.t.Helper()
	build, use, _ := strings.Cut(block, "\n")
	if !eventually(func() bool { return d.shell("postern exec builder -- true").Run() == nil }) {
		d.t.Fatalf("the executor never gets reachable:\n%s", d.log.String())
	}
	if got := d.run(build); got != "all:\n" {
		d.t.Errorf("%s printed %q, want the Makefile of the workspace", build, got)
	}
	untar, _, _ := strings.Cut(use, "\n")
	d.run(untar)
	if got := readFile(d.t, filepath.Join(d.dir, "build/src/main.c")); got != "source\n" {
		d.t.Errorf("after %s the workspace has %q", untar, got)
	}
}

// readmeBlocks are the code blocks of one section of README.md, which must have so many.
func readmeBlocks(t *testing.T, section string, want int) []string {
	t.Helper()
	_, text, found := strings.Cut(readText(t, "README.md"), "\n## "+section+"\n")
	if !found {
		t.Fatalf("README.md has no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	blocks := codeBlocks(text)
	if len(blocks) != want {
		t.Fatalf("section %q has %d blocks, want %d", section, len(blocks), want)
	}
	return blocks
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
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
	d := &deployment{t: t, dir: t.TempDir(), address: relaytest.FreeAddress(t)}
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

// beside is a command that runs beside the test.
type beside struct {
	d              *deployment
	cmd            *exec.Cmd
	stdout, stderr lockedBuffer
}

// start runs lines that the test waits for later.
func (d *deployment) start(lines string) *beside {
	d.t.Helper()
	s := &beside{d: d, cmd: d.shell("exec " + strings.TrimSpace(lines))}
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // it has ended, unless the test has failed
	return s
}

// wait is what it printed, once it has ended.
func (s *beside) wait() string {
	s.d.t.Helper()
	if err := s.cmd.Wait(); err != nil {
		s.d.t.Fatalf("%v: %s", err, s.stderr.String())
	}
	return s.stdout.String()
}

// serve runs a daemon's lines until the test ends, and is the daemon's first line.
func (d *deployment) serve(lines string) string {
	d.t.Helper()
	return d.daemon(lines).line
}

// servant is a daemon that serves until it is stopped, at the latest when the test ends.
type servant struct {
	line string // its first
	stop func() // ends it as an operator would; once is enough
}

func (d *deployment) daemon(lines string) *servant {
	d.t.Helper()
	cmd := d.shell("exec " + strings.TrimSpace(lines))
	line := make(chan string, 1)
	cmd.Stdout, cmd.Stderr = &firstLine{Writer: io.Discard, line: line}, &d.log
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	stop := sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its end shows whether it arrived
		if err := <-ended; err != nil {
			d.t.Errorf("on TERM: %v\n%s", err, d.log.String())
		}
	})
	select {
	case first := <-line:
		d.t.Cleanup(stop)
		return &servant{first, stop}
	case err := <-ended:
		d.t.Fatalf("%s: %v\n%s", lines, err, d.log.String())
		return nil
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
