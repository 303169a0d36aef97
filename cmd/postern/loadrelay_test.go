//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
)

// loadRelay is `postern relay` in a process of its own, which is watched on its metrics listener.
type loadRelay struct {
	t        testing.TB
	program  string
	dir      string
	flags    []string
	address  string // host:port of UDP
	observed string // host:port of the metrics
	url      keys.RelayURL
	cmd      *exec.Cmd
}

// startLoadRelay runs program, or this test binary where that is empty, as a relay until the test ends.
func startLoadRelay(t testing.TB, program string, flags ...string) *loadRelay {
	t.Helper()
	r := &loadRelay{t: t, program: program, dir: t.TempDir(), flags: flags}
	if r.program == "" {
		r.program = os.Args[0]
	}
	r.address, r.observed = lastingAddress(), lastingAddress()
	t.Cleanup(func() { r.end(syscall.SIGKILL) })
	r.start()
	return r
}

// lastingAddress is one of loopback whose port is free, and stays so while nobody has it: the kernel gives its own ports, from
// 32768 on, to thousands of executors that come back.
func lastingAddress() string {
	for {
		address := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		udp, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		_ = udp.Close()
		if tcp, err := net.Listen("tcp", address); err == nil {
			_ = tcp.Close()
			return address
		}
	}
}

// start starts the process and waits for its address.
func (r *loadRelay) start() {
	r.t.Helper()
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	defer log.Close()
	args := append([]string{"postern", "relay", "--listen", r.address, "--state", filepath.Join(r.dir, "state"), "--metrics", r.observed, "--pprof"}, r.flags...)
	r.cmd = &exec.Cmd{Path: r.program, Args: args, Stderr: log, Env: append(os.Environ(), "HOME="+r.dir)}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		r.url, err = keys.ParseRelayURL(strings.TrimSpace(line))
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name()) // only for the message
		r.t.Fatalf("the relay does not say its address: %v\n%s", err, text)
	}
}

// end ends the process by a signal.
func (r *loadRelay) end(sig syscall.Signal) {
	if r.cmd != nil {
		_ = r.cmd.Process.Signal(sig) // it may have ended
		_ = r.cmd.Wait()              // the exit status of a killed one says nothing
		r.cmd = nil
	}
}

// admit writes the list of tenants, and waits until it is in force.
func (r *loadRelay) admit(lines ...string) {
	r.t.Helper()
	path := filepath.Join(r.dir, "state", "tenants")
	if err := os.WriteFile(path+".new", []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		r.t.Fatal(err)
	}
	members := 0
	for _, line := range lines {
		if !strings.HasPrefix(line, "tenant ") {
			members++
		}
	}
	if !eventually(func() bool { return r.status().Members == members }) {
		r.t.Fatalf("the relay never admits %d members", members)
	}
}

// get is what the relay shows under a path.
func (r *loadRelay) get(path string) ([]byte, error) {
	answer, err := http.Get("http://" + r.observed + path)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	return io.ReadAll(answer.Body)
}

func (r *loadRelay) status() (s relay.Status) {
	if b, err := r.get("/statusz"); err == nil { // it may be starting
		_ = json.Unmarshal(b, &s)
	}
	return s
}

// series are the samples of all metrics, by name and labels as they are shown.
func (r *loadRelay) series() map[string]float64 {
	r.t.Helper()
	b, err := r.get("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	all := make(map[string]float64)
	for line := range strings.Lines(string(b)) {
		name, text, found := strings.Cut(strings.TrimSpace(line), "} ")
		if found {
			name += "}"
		} else {
			name, text, found = strings.Cut(strings.TrimSpace(line), " ")
		}
		if value, err := strconv.ParseFloat(text, 64); found && err == nil && !strings.HasPrefix(line, "#") {
			all[name] = value
		}
	}
	return all
}

// collect makes the relay collect its garbage, so that what is left is held.
func (r *loadRelay) collect() {
	r.t.Helper()
	for range 2 { // finalizers
		if _, err := r.get("/debug/pprof/heap?gc=1"); err != nil {
			r.t.Fatal(err)
		}
	}
}

// rss is the resident memory in bytes.
func (r *loadRelay) rss() int {
	r.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", r.cmd.Process.Pid))
	if err != nil {
		r.t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(b), &size, &resident); err != nil {
		r.t.Fatal(err)
	}
	return resident * os.Getpagesize()
}

// registered waits until so many executors are there, or more where that is enough.
func (r *loadRelay) registered(n int, more bool, patience time.Duration) (took time.Duration) {
	r.t.Helper()
	begun := time.Now()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for there := 0; there != n && (!more || there < n); <-tick.C {
		if there = r.status().Executors; time.Since(begun) > patience {
			r.t.Fatalf("%d of %d executors are there after %v", there, n, patience)
		}
	}
	return time.Since(begun)
}
