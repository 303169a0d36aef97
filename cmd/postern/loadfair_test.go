//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// loadBlast makes BenchmarkLoadBlast a process that fills circuits with bytes.
const loadBlast = "POSTERN_LOAD_BLAST"

// blastCircuits is how many circuits are filled, every other one to the executor, the rest to the client.
const blastCircuits = 6

// startBlast runs a client and an executor of one tenant at full blast in another process.
func startBlast(b *testing.B, url keys.RelayURL, client, executor *keys.PrivateKey) (process int, end func()) {
	b.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^$", "-test.bench", "^BenchmarkLoadBlast$", "-test.benchtime", "1x", "-test.timeout", "2h")
	cmd.Env = append(os.Environ(), loadBlast+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(stdin, "%v\n%s\n%s\n", url, client.Secret(), executor.Secret())
	return cmd.Process.Pid, func() {
		_ = stdin.Close()
		if err := cmd.Wait(); err != nil {
			b.Errorf("the process at full blast: %v", err)
		}
	}
}

// BenchmarkLoadBlast is no benchmark but what startBlast runs.
func BenchmarkLoadBlast(b *testing.B) {
	if os.Getenv(loadBlast) == "" {
		b.Skip("a part of BenchmarkFairness")
	}
	in := bufio.NewReader(os.Stdin)
	var lines [3]string
	for i := range lines {
		line, err := in.ReadString('\n')
		if err != nil {
			b.Fatal(err)
		}
		lines[i] = strings.TrimSpace(line)
	}
	url, err := keys.ParseRelayURL(lines[0])
	if err != nil {
		b.Fatal(err)
	}
	var pair [2]*keys.PrivateKey
	for i := range pair {
		if pair[i], err = keys.ParsePrivateKey(lines[i+1]); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	executor := newLoadPeer(pair[1], url)
	executor.serve = func(s wire.Stream) { // either end may be the one that sends
		var first [1]byte
		if _, err := io.ReadFull(s, first[:]); err == nil && first[0] == 1 {
			fill(s)
			return
		}
		_, _ = io.Copy(io.Discard, s)
	}
	all.Go(func() { _ = executor.stay(ctx) })
	client, err := newLoadPeer(pair[0], url).client(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer client.close()
	for i := range blastCircuits {
		all.Go(func() {
			s := dialPatiently(ctx, client, executor.key.Public())
			if s == nil {
				return
			}
			down := byte(i % 2)
			_, _ = s.Write([]byte{down})
			if down == 1 {
				_, _ = io.Copy(io.Discard, s)
				return
			}
			fill(s)
		})
	}
	_, _ = io.Copy(io.Discard, in)
}

func fill(s wire.Stream) {
	for b := make([]byte, 64<<10); ; {
		if _, err := s.Write(b); err != nil {
			return
		}
	}
}

// dialPatiently waits for the executor to be registered.
func dialPatiently(ctx context.Context, c *loadClient, executor keys.PublicKey) wire.Stream {
	for ctx.Err() == nil {
		if s, err := c.dial(ctx, executor); err == nil {
			return s
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// echoes is what round trips of 64 bytes took.
type echoes struct{ half, most time.Duration } // p50, p99

func measureEchoes(b *testing.B, s wire.Stream, long time.Duration) echoes {
	b.Helper()
	var all []time.Duration
	for begun := time.Now(); time.Since(begun) < long; {
		took, err := roundTrip(s, 64)
		if err != nil {
			b.Fatal(err)
		}
		all = append(all, took)
		time.Sleep(2 * time.Millisecond)
	}
	slices.Sort(all)
	return echoes{all[len(all)/2], all[len(all)*99/100]}
}

// BenchmarkFairness compares the round trips of one tenant while the relay is idle with those while another one is at full
// blast, without a rate and with one. All of it is on one machine, so that without a rate the processors are what they compete for; hence
// also twice more without one: with a processor for the relay alone, where the ends of the measured circuit go before the blaster, as if
// each had a machine; and with a relay of its own for the blaster, so that the two share nothing but the machine.
func BenchmarkFairness(b *testing.B) {
	const long = 10 * time.Second
	program := buildPostern(b)
	r, another := startLoadRelay(b, program, "--log-level", "warn"), startLoadRelay(b, program, "--log-level", "warn")
	member := func(kind keys.Kind) *keys.PrivateKey { return newLoadKey(b, kind) }
	blastClient, blastExecutor, quietClient, quietExecutor := member(keys.Client), member(keys.Executor), member(keys.Client), member(keys.Executor)
	blasters := []string{fmt.Sprintf("client %v c", blastClient.Public()), fmt.Sprintf("exec %v e", blastExecutor.Public())}
	admit := func(limit string) {
		r.admit(append(append([]string{"tenant blast " + limit}, blasters...),
			"tenant quiet", fmt.Sprintf("client %v c", quietClient.Public()), fmt.Sprintf("exec %v e", quietExecutor.Public()))...)
	}
	another.admit(append([]string{"tenant blast"}, blasters...)...)
	admit("")
	ctx, cancel := context.WithCancel(b.Context())
	var staying sync.WaitGroup
	defer staying.Wait()
	defer cancel()
	staying.Go(func() { _ = newLoadPeer(quietExecutor, r.url).stay(ctx) })
	client, err := newLoadPeer(quietClient, r.url).client(ctx)
	if err != nil {
		b.Fatal(err)
	}
	defer client.close()
	s := dialPatiently(ctx, client, quietExecutor.Public())
	measureEchoes(b, s, time.Second)                                                           // warm
	const apart, elsewhere = "no rate, a processor for the relay", "no rate, at another relay" // last: where a process runs stays so
	for _, row := range []string{"no rate", "bytes/s=50M", "bytes/s=20M", "bytes/s=5M", elsewhere, apart} {
		limit, through := "", r
		switch {
		case strings.Contains(row, "="):
			limit = row
		case row == elsewhere:
			through = another
		case row == apart && !(place(b, r.cmd.Process.Pid, 0, 0) && place(b, os.Getpid(), 1, -10)):
			b.Logf("%s: not tried: it takes root and two processors", row)
			continue
		}
		admit(limit)
		idle := measureEchoes(b, s, long)
		process, end := startBlast(b, through.url, blastClient, blastExecutor)
		if row == apart {
			place(b, process, 1, 19)
		}
		time.Sleep(3 * time.Second)
		bytes, begun := relayed(through), time.Now()
		busy := measureEchoes(b, s, long)
		perSecond := (relayed(through) - bytes) / time.Since(begun).Seconds()
		end()
		b.Logf("%s: idle: half within %v, 99 of 100 within %v; beside %.1f MB/s: %v and %v, %.1f and %.1f times as much", row, idle.half.Round(time.Microsecond), idle.most.Round(time.Microsecond),
			perSecond/1e6, busy.half.Round(time.Microsecond), busy.most.Round(time.Microsecond), float64(busy.half)/float64(idle.half), float64(busy.most)/float64(idle.most))
	}
}

// place keeps a process on one processor, all its threads at a priority as nice has it. Threads that it starts later are like those
// that start them. It reports whether it may.
func place(b *testing.B, process, processor, nice int) bool {
	b.Helper()
	if runtime.NumCPU() < 2 {
		return false
	}
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", process))
	if err != nil {
		b.Fatal(err)
	}
	var one unix.CPUSet
	one.Set(processor)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			b.Fatal(err)
		}
		if unix.SchedSetaffinity(id, &one) != nil || unix.Setpriority(unix.PRIO_PROCESS, id, nice) != nil {
			return false
		}
	}
	return true
}

func relayed(r *loadRelay) float64 {
	s := r.series()
	return s[`postern_relay_relayed_bytes_total{direction="to_executor"}`] + s[`postern_relay_relayed_bytes_total{direction="to_client"}`]
}
