//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
)

// The variable that makes the benchmark below a process full of executors, and how many those of BenchmarkCapacity are.
const (
	loadWorker    = "POSTERN_LOAD_WORKER"
	loadExecutors = "POSTERN_LOAD_EXECUTORS"
)

// loadCrowd is a process with many executors.
type loadCrowd struct {
	keys  []keys.PublicKey
	stdin io.WriteCloser
	cmd   *exec.Cmd
}

// startLoadCrowd starts a process that makes n keys, and waits for the relay's address.
func startLoadCrowd(b *testing.B, n int) *loadCrowd {
	b.Helper()
	c := &loadCrowd{cmd: exec.Command(os.Args[0], "-test.run", "^$", "-test.bench", "^BenchmarkLoadWorker$", "-test.benchtime", "1x", "-test.timeout", "2h")}
	c.cmd.Env = append(os.Environ(), loadWorker+"="+strconv.Itoa(n), "GOGC=400") // the processors are for the relay
	c.cmd.Stderr = os.Stderr
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		b.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for len(c.keys) < n && lines.Scan() {
		if _, text, found := strings.Cut(lines.Text(), "key "); found {
			key, err := keys.ParsePublicKey(text)
			if err != nil {
				b.Fatal(err)
			}
			c.keys = append(c.keys, key)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return c
}

// BenchmarkLoadWorker is no benchmark but what startLoadCrowd runs.
func BenchmarkLoadWorker(b *testing.B) {
	n, _ := strconv.Atoi(os.Getenv(loadWorker))
	if n == 0 {
		b.Skip("a part of BenchmarkCapacity")
	}
	all := make([]*keys.PrivateKey, n)
	fmt.Println()
	for i := range all {
		all[i] = newLoadKey(b, keys.Executor)
		fmt.Printf("key %v\n", all[i].Public())
	}
	stdin := bufio.NewReader(os.Stdin)
	line, err := stdin.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	url, err := keys.ParseRelayURL(strings.TrimSpace(line))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var executors sync.WaitGroup
	for _, key := range all {
		executors.Go(func() { _ = newLoadPeer(key, url).stay(ctx) })
	}
	_, _ = io.Copy(io.Discard, stdin) // until nobody needs them any more
	cancel()
	executors.Wait()
}

func newLoadKey(t testing.TB, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	key, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// buildPostern builds the program as it is delivered.
func buildPostern(b *testing.B) string {
	b.Helper()
	program := filepath.Join(b.TempDir(), "postern")
	build := exec.Command("go", "build", "-buildvcs=false", "-trimpath", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	return program
}

// BenchmarkCapacity measures one relay process with many idle executors; relay/CAPACITY.md has its figures.
//
//	make capacity
func BenchmarkCapacity(b *testing.B) {
	n := 5000
	if text := os.Getenv(loadExecutors); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	// A real fleet comes from many addresses; this one from a single one.
	r := startLoadRelay(b, buildPostern(b), "--exempt", "127.0.0.1/32", "--log-level", "warn")
	crowds := []*loadCrowd{startLoadCrowd(b, n/2), startLoadCrowd(b, n-n/2)}
	client := newLoadKey(b, keys.Client)
	list := []string{"tenant load", fmt.Sprintf("client %v client", client.Public())}
	var executors []keys.PublicKey
	for _, crowd := range crowds {
		executors = append(executors, crowd.keys...)
	}
	for i, key := range executors {
		list = append(list, fmt.Sprintf("exec %v e%d", key, i))
	}
	r.admit(list...)
	r.collect()
	before, empty := r.series(), r.rss()
	for _, crowd := range crowds {
		fmt.Fprintln(crowd.stdin, r.url)
	}
	b.Logf("%d executors, all there after %.1f s", n, r.registered(n, false, 5*time.Minute).Seconds())
	idle(b, r, n, before, empty)
	dials(b, r, client, executors)
	r.end(syscall.SIGKILL)
	r.start()
	back(b, r, "killed", n)
	time.Sleep(65 * time.Second) // who came back a minute ago begins with short waits again
	r.end(syscall.SIGTERM)
	r.start()
	back(b, r, "drained", n)
	dials(b, r, client, executors)
}

// back waits until all executors are back at a relay that was started again.
func back(b *testing.B, r *loadRelay, how string, n int) {
	b.Helper()
	begun := time.Now()
	most := r.registered(n*99/100, true, 5*time.Minute)
	r.registered(n, false, 5*time.Minute)
	s := r.series()
	b.Logf("%s and started again: 99 of 100 back after %.1f s, all after %.1f s; the relay used %.1f s of processor, refused %.0f that were too many at a time",
		how, most.Seconds(), time.Since(begun).Seconds(), s["process_cpu_seconds_total"], s[`postern_relay_strangers_limited_total{limit="handshake_global"}`])
}

// idle measures what executors cost that do nothing.
func idle(b *testing.B, r *loadRelay, n int, before map[string]float64, empty int) {
	time.Sleep(10 * time.Second)
	cpu, begun := r.series()["process_cpu_seconds_total"], time.Now()
	time.Sleep(40 * time.Second)
	s := r.series()
	cpu = (s["process_cpu_seconds_total"] - cpu) / time.Since(begun).Minutes()
	each := func(total float64) float64 { return total / float64(n) }
	b.Logf("resident: %.1f MiB, %.1f without executors, %.1f KiB for each", float64(r.rss())/(1<<20), float64(empty)/(1<<20), each(float64(r.rss()-empty)/(1<<10)))
	b.Logf("goroutines: %.2f for each", each(s["go_goroutines"]-before["go_goroutines"]))
	b.Logf("processor: %.2f s a minute", cpu)
	r.collect()
	s = r.series()
	b.Logf("after a collection: heap %.1f KiB for each, stacks %.1f KiB, resident %.1f KiB",
		each((s["go_memstats_heap_inuse_bytes"]-before["go_memstats_heap_inuse_bytes"])/(1<<10)),
		each((s["go_memstats_stack_inuse_bytes"]-before["go_memstats_stack_inuse_bytes"])/(1<<10)), each(float64(r.rss()-empty)/(1<<10)))
	for _, profile := range []string{"heap", "goroutine"} {
		if dir := os.Getenv("POSTERN_LOAD_PROFILES"); dir != "" {
			if p, err := r.get("/debug/pprof/" + profile); err == nil {
				_ = os.WriteFile(filepath.Join(dir, profile+".pprof"), p, 0o600)
			}
		}
	}
}

// dials begins 200 circuits a second for 15 seconds, each with one message there and back.
func dials(b *testing.B, r *loadRelay, key *keys.PrivateKey, executors []keys.PublicKey) {
	b.Helper()
	const perSecond, seconds = 200, 15
	var clients []*loadClient
	for range 4 {
		c, err := newLoadPeer(key, r.url).client(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		defer c.close()
		clients = append(clients, c)
	}
	var mu sync.Mutex
	var took []time.Duration
	failures := make(map[string]int)
	var all sync.WaitGroup
	tick := time.NewTicker(time.Second / perSecond)
	defer tick.Stop()
	for i := range perSecond * seconds {
		<-tick.C
		all.Go(func() {
			begun := time.Now()
			s, err := clients[i%len(clients)].dial(b.Context(), executors[rand.IntN(len(executors))])
			if err == nil {
				_, err = roundTrip(s, 64)
				_ = s.CloseWrite()
				_, _ = io.Copy(io.Discard, s)
				s.Reset(0)
			}
			mu.Lock()
			defer mu.Unlock()
			if took = append(took, time.Since(begun)); err != nil {
				failures[err.Error()]++
			}
		})
	}
	all.Wait()
	slices.Sort(took)
	b.Logf("%d circuits at %d a second: %d failed %v, half within %v, 99 of 100 within %v", len(took), perSecond, len(failures), failures,
		took[len(took)/2].Round(time.Microsecond), took[len(took)*99/100].Round(time.Microsecond))
	if len(failures) > 0 {
		b.Errorf("circuits failed: %v", failures)
	}
}
