//go:build linux

package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// What a client and its executor say to each other is nowhere at the relay: not in its memory, its files, its logs,
// its metrics, nor on its wire. The controls show that the search would find it.
func TestRelayHasNoWordOfACommand(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.relay.stop()
	tenant := "tenant-" + strings.ToLower(rand.Text()) // that the relay has to know
	s.write("relay/tenants", strings.Replace(readFile(t, s.path("relay/tenants")), "tenant t\n", "tenant "+tenant+"\n", 1))
	s.relay.args = append(s.relay.args, "--log-level", "debug", "--accounting", s.path("relay/circuits"), "--metrics", "127.0.0.1:0", "--tenant-metrics")
	s.relay.start()

	if !eventually(func() bool { return s.command("exec", "box", "--", "true").Run() == nil }) {
		t.Fatal("the executor does not come back")
	}

	words := map[string]string{"argument": rand.Text(), "variable": rand.Text(), "input": rand.Text(), "output": rand.Text(), "folder": rand.Text()}
	wire := newTap(words)
	s.fromClient.tap.Store(&wire.look)
	s.fromExecutor.tap.Store(&wire.look)
	if err := os.Mkdir(filepath.Join(s.path("work"), words["folder"]), 0o755); err != nil {
		t.Fatal(err)
	}
	// The output is made on the executor of two halves, so that it is no argument.
	half := len(words["output"]) / 2
	cmd := s.command("exec", "-i", "-w", filepath.Join(s.path("work"), words["folder"]), "-e", "WORD="+words["variable"], "box", "--",
		"sh", "-c", `echo `+words["output"][:half]+`""`+words["output"][half:]+`; : `+words["argument"]+`; cat`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if _, err := fmt.Fprintln(in, words["input"]); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{words["output"], words["input"]} {
		if !lines.Scan() || lines.Text() != want {
			t.Fatalf("the command printed %q, want %q", lines.Text(), want)
		}
	}

	// While it runs, and right after everything has gone through.
	relay, executor := s.relay.cmd.Process.Pid, s.executor.cmd.Process.Pid
	inRelay := inMemory(t, relay, append(valuesOfMap(words), tenant))
	inExecutor := inMemory(t, executor, valuesOfMap(words))
	if !inRelay[tenant] {
		t.Error("control: the name of the tenant is not found in the relay's memory, so the search finds nothing")
	}
	if !inExecutor[words["argument"]] || !inExecutor[words["input"]] {
		t.Error("control: what the executor was sent is not found in its memory, so the search finds nothing")
	}
	for what, word := range words {
		if inRelay[word] {
			t.Errorf("the relay's memory has the %s", what)
		}
	}
	shown := s.shown(t)
	if !strings.Contains(shown, tenant) {
		t.Error("control: the metrics do not name the tenant, although they were asked to")
	}
	in.Close()
	_, _ = io.Copy(io.Discard, out) // its end
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	s.relay.stop() // so that all of the accounting is written

	places := map[string]string{"logs": s.log.String(), "metrics": shown, "files": allFiles(t, s.path("relay"))}
	for place, control := range map[string]string{"logs": "circuit opened", "files": `"end":"`} {
		if !strings.Contains(places[place], control) {
			t.Errorf("control: the relay's %s do not have %q", place, control)
		}
	}
	for place, text := range places {
		for what, word := range words {
			if strings.Contains(text, word) {
				t.Errorf("the relay's %s have the %s", place, what)
			}
		}
	}
	wire.want(t, s)
}

// tap looks for words in datagrams.
type tap struct {
	words map[string]string
	look  func([]byte)

	mu        sync.Mutex
	datagrams int
	found     map[string]int
}

func newTap(words map[string]string) *tap {
	p := &tap{words: words, found: make(map[string]int)}
	p.look = func(datagram []byte) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.datagrams++
		for what, word := range p.words {
			if bytes.Contains(datagram, []byte(word)) {
				p.found[what]++
			}
		}
	}
	return p
}

// want finds no word, and then one that is sent in the open.
func (p *tap) want(t *testing.T, s *site) {
	t.Helper()
	read := func() (int, map[string]int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		found := make(map[string]int)
		maps.Copy(found, p.found)
		return p.datagrams, found
	}
	if n, found := read(); n < 20 || len(found) != 0 {
		t.Errorf("of %d datagrams some have words in the open: %v", n, found)
	}
	c, err := net.Dial("udp", s.fromClient.address())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("in the open: " + p.words["input"])); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { _, found := read(); return found["input"] == 1 && len(found) == 1 }) {
		t.Error("control: a word that is sent in the open is not found")
	}
}

// inMemory is which words a process has in memory that it can write.
func inMemory(t *testing.T, pid int, words []string) map[string]bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Skipf("needs to read the memory of a process of its own: %v", err)
	}
	defer mem.Close()
	found := make(map[string]bool)
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || !strings.HasPrefix(mode, "rw") {
			continue
		}
		const step, overlap = 4 << 20, 128
		for at := from; at < to; at += step {
			b := make([]byte, min(step+overlap, to-at))
			n, err := mem.ReadAt(b, at)
			if err != nil && n == 0 {
				continue // given back meanwhile
			}
			for _, word := range words {
				if bytes.Contains(b[:n], []byte(word)) {
					found[word] = true
				}
			}
		}
	}
	return found
}

var metricsAt = regexp.MustCompile(`msg="metrics are shown" address=(\S+)`)

// shown is all that the relay shows to those who watch it.
func (s *site) shown(t *testing.T) string {
	t.Helper()
	m := metricsAt.FindStringSubmatch(s.log.String())
	if m == nil {
		t.Fatal("the relay does not say where its metrics are")
	}
	var all strings.Builder
	for _, path := range []string{"/metrics", "/statusz", "/readyz", "/livez"} {
		r, err := http.Get("http://" + m[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(&all, r.Body); err != nil {
			t.Fatal(err)
		}
		r.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
	return all.String()
}

// allFiles is the content of all files below a folder.
func allFiles(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

func valuesOfMap(m map[string]string) (values []string) {
	for _, v := range m {
		values = append(values, v)
	}
	return values
}
