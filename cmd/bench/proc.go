//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// clockTicks is USER_HZ, which Linux has fixed for what it shows in /proc.
const clockTicks = 100

// processStat is what /proc/PID/stat says of a process.
type processStat struct {
	parent int
	own    float64 // CPU seconds
	cpu    float64 // of children that were waited for too
}

func parseStat(text string) (s processStat, err error) {
	// The name, in parentheses, may hold anything; what follows its last one does not.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 15 {
		return s, fmt.Errorf("stat: %d fields", len(fields))
	}
	if s.parent, err = strconv.Atoi(fields[1]); err != nil {
		return s, err
	}
	for i, field := range fields[11:15] { // utime, stime, cutime, cstime
		ticks, err := strconv.ParseFloat(field, 64)
		if err != nil {
			return s, err
		}
		if i < 2 {
			s.own += ticks / clockTicks
		}
		s.cpu += ticks / clockTicks
	}
	return s, nil
}

// tree is a process and all that descend from it, by pid.
func tree(root int) map[int]processStat {
	all := make(map[int]processStat)
	names, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		if s, err := parseStat(string(text)); err == nil {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			all[pid] = s
		}
	}
	in := func(pid int) bool {
		for range len(all) {
			if pid == root {
				return true
			}
			s, ok := all[pid]
			if !ok {
				return false
			}
			pid = s.parent
		}
		return false
	}
	found := make(map[int]processStat)
	for pid, s := range all {
		if in(pid) {
			found[pid] = s
		}
	}
	return found
}

// treeCPU is the processor time in seconds that a process and its descendants have used.
func treeCPU(root int) (seconds float64) {
	for _, s := range tree(root) {
		seconds += s.cpu
	}
	return seconds
}

// processor is the processor time in seconds that a process itself has used so far. It is exact where /proc has
// hundredths.
func processor(pid int) (float64, error) {
	const scheduled = 2 // CPUCLOCK_SCHED: what the scheduler counts, of all threads, those that have ended too
	var used unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|scheduled), &used); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(used.Nano()).Seconds(), nil
}

// resident is a process's memory in bytes.
func resident(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	var size, pages float64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, err
	}
	return pages * float64(os.Getpagesize()), nil
}

// strays are the processes that run a program which is this run's own, and do not descend from this one: what the
// product itself has left in the background. It looks twice, since processes come and go while it does.
func strays(program string) (pids []int) {
	first := straysOnce(program)
	for pid := range straysOnce(program) {
		if first[pid] {
			pids = append(pids, pid)
		}
	}
	return pids
}

func straysOnce(program string) map[int]bool {
	found := make(map[int]bool)
	names, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, name := range names {
		target, err := os.Readlink(name)
		if err != nil || target != program {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			found[pid] = true
		}
	}
	for pid := range tree(os.Getpid()) {
		delete(found, pid)
	}
	return found
}

// freeAddress is one of loopback whose port is free for TCP and UDP, and stays so: it is below those that the kernel
// gives away by itself.
func freeAddress() (string, error) {
	for range 1000 {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+rand.IntN(20_000)))
		udp, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		tcp, err := net.Listen("tcp", address)
		_ = udp.Close()
		if err == nil {
			_ = tcp.Close()
			return address, nil
		}
	}
	return "", fmt.Errorf("no port of 127.0.0.1 is free between 10000 and 30000")
}
