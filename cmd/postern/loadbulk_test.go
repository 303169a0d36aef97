//go:build linux

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
)

// bulkSite is a relay and an executor as they are delivered, and the home of a client, with one setting of the environment.
type bulkSite struct {
	b           *testing.B
	program     string
	environment []string
	relay       *loadRelay
	executor    *exec.Cmd
}

func newBulkSite(b *testing.B, program string, environment ...string) *bulkSite {
	b.Helper()
	for _, e := range environment { // startLoadRelay's processes have this one's
		name, value, _ := strings.Cut(e, "=")
		b.Setenv(name, value)
	}
	s := &bulkSite{b: b, program: program, relay: startLoadRelay(b, program, "--log-level", "warn")}
	client, executor := newLoadKey(b, keys.Client), newLoadKey(b, keys.Executor)
	s.relay.admit("tenant t", fmt.Sprintf("client %v c", client.Public()), fmt.Sprintf("exec %v box", executor.Public()))
	home, state, work := b.TempDir(), b.TempDir(), b.TempDir()
	if err := keys.WriteFile(filepath.Join(home, "client.key"), client); err != nil {
		b.Fatal(err)
	}
	if err := keys.WriteFile(filepath.Join(state, "executor.key"), executor); err != nil {
		b.Fatal(err)
	}
	for path, line := range map[string]string{
		filepath.Join(home, "known_executors"):     fmt.Sprintf("box %v %v\n", executor.Public(), s.relay.url),
		filepath.Join(state, "authorized_clients"): fmt.Sprintf("%v c\n", client.Public()),
	} {
		if err := os.WriteFile(path, []byte(line), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	s.environment = append(os.Environ(), "POSTERN_HOME="+home)
	s.executor = exec.Command(program, "executor", "--relay", s.relay.url.String(), "--name", "box", "--state", state, "--workspace", work,
		"--sandbox-max", "full-access", "--log-level", "error")
	if err := s.executor.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = s.executor.Process.Signal(syscall.SIGTERM)
		_ = s.executor.Wait() // ended by a signal
	})
	if !eventually(func() bool { return s.command("true").Run() == nil }) {
		b.Fatal("the executor never gets reachable")
	}
	return s
}

// command runs on the executor without a sandbox.
func (s *bulkSite) command(argv ...string) *exec.Cmd {
	cmd := exec.Command(s.program, append([]string{"exec", "-i", "-q", "--sandbox", "full-access", "box", "--"}, argv...)...)
	cmd.Env = s.environment
	return cmd
}

// bulk is what carrying bytes has taken: seconds on the clock, and of processor.
type bulk struct{ took, client, relay, executor float64 }

func (c bulk) all() float64 { return c.client + c.relay + c.executor }

// carry sends size bytes to the executor or back, once.
func (s *bulkSite) carry(up bool, size int64) (c bulk) {
	s.b.Helper()
	cmd := s.command("head", "-c", fmt.Sprint(size), "/dev/zero")
	if up {
		cmd = s.command("sh", "-c", "wc -c >/dev/null")
		cmd.Stdin = io.LimitReader(zeros{}, size)
	}
	relay, executor := used(s.b, s.relay.cmd.Process.Pid), used(s.b, s.executor.Process.Pid)
	begun := time.Now()
	if err := cmd.Run(); err != nil {
		s.b.Fatal(err)
	}
	c.took = time.Since(begun).Seconds()
	c.client = (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds() // getrusage(2)
	c.relay, c.executor = used(s.b, s.relay.cmd.Process.Pid)-relay, used(s.b, s.executor.Process.Pid)-executor
	return c
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// used is the processor time of a process that runs, in seconds, to 10 ms.
func used(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after) // from the third on, proc_pid_stat(5)
	var user, system float64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &system); err != nil {
		b.Fatal(err)
	}
	return (user + system) / 100 // Linux shows all architectures USER_HZ
}

// BenchmarkBulk carries bytes from client to executor and back, through a relay, each a process of its own, and compares sockets
// that read coalesced datagrams (wire/quicconn) with those that do not, which take turns.
//
//	go test ./cmd/postern -run '^$' -bench '^BenchmarkBulk$' -benchtime 1x -v
//
// Medians of five rounds of 250 MB each, Linux 6.18 on two processors (2026-11-30). The machine had other work (load 8 to 10), so
// that the rates say little; processor time is in seconds for each GB:
//
//	                             MB/s  client  relay  executor   all
//	to the client    coalesced     62     6.2    7.1       5.8  19.0   0.94 times the rate, 0.86 times the processor
//	                 one by one    65     7.4    8.4       6.3  22.1
//	to the executor  coalesced     86     6.0    6.8       6.2  18.9   1.21 times the rate, 0.82 times the processor
//	                 one by one    71     7.2    8.4       7.5  23.1
func BenchmarkBulk(b *testing.B) {
	const size, rounds = 250_000_000, 5
	program := buildPostern(b)
	sites := []*bulkSite{newBulkSite(b, program), newBulkSite(b, program, "POSTERN_DISABLE_GRO=1")}
	for _, up := range []bool{false, true} {
		got := make([][]bulk, len(sites))
		for range rounds {
			for i, s := range sites {
				got[i] = append(got[i], s.carry(up, size))
			}
		}
		median := func(site int, of func(bulk) float64) float64 {
			var all []float64
			for _, c := range got[site] {
				all = append(all, of(c))
			}
			slices.Sort(all)
			return all[len(all)/2]
		}
		direction := map[bool]string{false: "to the client", true: "to the executor"}[up]
		perGB := func(site int, of func(bulk) float64) float64 { return median(site, of) / size * 1e9 }
		for i, name := range []string{"coalesced", "one by one"} {
			b.Logf("%s, %s: %.0f MB/s; processor s/GB: client %.1f, relay %.1f, executor %.1f, all %.1f", direction, name,
				size/1e6/median(i, func(c bulk) float64 { return c.took }), perGB(i, func(c bulk) float64 { return c.client }),
				perGB(i, func(c bulk) float64 { return c.relay }), perGB(i, func(c bulk) float64 { return c.executor }), perGB(i, bulk.all))
		}
		b.Logf("%s, coalesced to one by one: %.2f times the rate, %.2f times the processor", direction,
			median(1, func(c bulk) float64 { return c.took })/median(0, func(c bulk) float64 { return c.took }), perGB(0, bulk.all)/perGB(1, bulk.all))
	}
}
