//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
)

// holdings is what this process has of everything that can be left behind.
type holdings struct {
	goroutines  int
	descriptors int
	processes   int
	mounts      int
	files       int // below the folder for temporary files, which is the test's own
}

func (h holdings) within(most holdings) bool {
	return h.goroutines <= most.goroutines && h.descriptors <= most.descriptors && h.processes <= most.processes &&
		h.mounts <= most.mounts && h.files <= most.files
}

func count(t *testing.T) (h holdings) {
	t.Helper()
	h.goroutines = runtime.NumGoroutine()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	h.descriptors = len(fds)
	h.processes = len(descendants(t))
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	h.mounts = bytes.Count(mounts, []byte("\n"))
	err = filepath.WalkDir(os.TempDir(), func(_ string, _ fs.DirEntry, err error) error {
		if h.files++; errors.Is(err, fs.ErrNotExist) {
			return nil // it went while we looked
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// descendants are the processes below this one, however deep.
func descendants(t *testing.T) (all []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	children := make(map[int][]int)
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:])) // the name may hold anything
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		parent, err := strconv.Atoi(fields[1])
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		children[parent] = append(children[parent], pid)
	}
	for queue := []int{os.Getpid()}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

// settle waits until no more is held than before, and says what is if that does not come.
func settle(t *testing.T, what string, before holdings) {
	t.Helper()
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		now := count(t)
		if now.within(before) {
			t.Logf("%s: %+v, before %+v", what, now, before)
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			var stacks strings.Builder
			if now.goroutines > before.goroutines {
				pprof.Lookup("goroutine").WriteTo(&stacks, 1)
			}
			t.Fatalf("%s: %+v are held, before it were %+v\n%s%s", what, now, before, openFiles(), stacks.String())
		}
	}
}

func openFiles() string {
	var list strings.Builder
	fds, _ := os.ReadDir("/proc/self/fd")
	for _, fd := range fds {
		target, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		fmt.Fprintf(&list, "%s %s\n", fd.Name(), target)
	}
	return list.String()
}

// Each command has a sandbox, pipes, a circuit through the relay, and goroutines on three sides.
// None of it may be left, neither while the parties go on nor when they have ended.
func TestExecsLeaveNothingBehind(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	before := count(t)
	t.Run("while the parties go on", func(t *testing.T) {
		b, _ := newBackend(t)
		remote := throughRelay(t, b)
		parallel(t, remote, leakParallel) // makes what is kept: connections, a session, ready sandboxes
		for range 20 {
			runTrue(t, remote)
		}
		warm := stable(t)
		began := time.Now()
		for range leakSequential {
			runTrue(t, remote)
		}
		t.Logf("%d commands one after another took %v", leakSequential, time.Since(began).Round(time.Millisecond))
		settle(t, "one after another", warm)
		began = time.Now()
		parallel(t, remote, leakParallel)
		t.Logf("%d commands at once took %v", leakParallel, time.Since(began).Round(time.Millisecond))
		settle(t, "at once", warm)
	})
	settle(t, "when the parties have ended", before)
}

func runTrue(t *testing.T, r *client.Remote) {
	if err := (client.Environment{Backend: r}).Command("true").Run(context.Background()); err != nil {
		t.Errorf("true: %v", err)
	}
}

func parallel(t *testing.T, r *client.Remote, n int) {
	var all sync.WaitGroup
	for range n {
		all.Go(func() { runTrue(t, r) })
	}
	all.Wait()
}

// stable is what is held when nothing changes any more.
func stable(t *testing.T) holdings {
	t.Helper()
	const looks = 100 // in a row that are the same
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	last, same := count(t), 0
	for range 1000 {
		<-tick.C
		now := count(t)
		if now != last {
			last, same = now, 0
		} else if same++; same == looks {
			return now
		}
	}
	t.Fatalf("what is held does not come to rest: %+v", last)
	return holdings{}
}
