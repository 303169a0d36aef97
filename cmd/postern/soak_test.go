//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// soakHolds is what a relay process has at a time.
type soakHolds struct {
	gauges      map[string]float64 // of the relay itself
	goroutines  float64
	descriptors float64
	heap        float64 // bytes in use after a collection
}

// heapMost is by how much the heap may have grown: tables keep their size, and no more is allowed however long it takes.
const heapMost = 24 << 20

func (r *loadRelay) holds() soakHolds {
	r.t.Helper()
	r.collect()
	s := r.series()
	h := soakHolds{make(map[string]float64), s["go_goroutines"], s["process_open_fds"], s["go_memstats_heap_inuse_bytes"]}
	for _, name := range r.gauges() {
		for series, value := range s {
			// A time is no holding.
			if family, _, _ := strings.Cut(series, "{"); family == name && !strings.HasSuffix(name, "_seconds") {
				h.gauges[series] = value
			}
		}
	}
	return h
}

// gauges are the names of the relay's own.
func (r *loadRelay) gauges() (names []string) {
	r.t.Helper()
	b, err := r.get("/metrics")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 4 && f[1] == "TYPE" && f[3] == "gauge" && strings.HasPrefix(f[2], "postern_relay_") {
			names = append(names, f[2])
		}
	}
	return names
}

// more says what now has beyond before, empty for nothing.
func (now soakHolds) more(before soakHolds) (all []string) {
	for series, was := range before.gauges {
		if is, there := now.gauges[series]; !there || is != was {
			all = append(all, fmt.Sprintf("%s is %v, was %v", series, is, was))
		}
	}
	for series, is := range now.gauges {
		if _, there := before.gauges[series]; !there && is != 0 {
			all = append(all, fmt.Sprintf("%s is new: %v", series, is))
		}
	}
	for what, pair := range map[string][2]float64{
		"goroutines": {now.goroutines, before.goroutines}, "descriptors": {now.descriptors, before.descriptors},
		"heap": {now.heap, before.heap + heapMost},
	} {
		if pair[0] > pair[1] {
			all = append(all, fmt.Sprintf("%s %.0f, want at most %.0f", what, pair[0], pair[1]))
		}
	}
	return all
}

// TestSoak has executors, clients and circuits come and go in every way, and then looks whether the relay has given everything
// back. SOAK says for how long, five seconds otherwise; only a longer one kills peers, of which the relay hears nothing
// until they have been silent for long enough.
func TestSoak(t *testing.T) {
	long := 5 * time.Second
	text := os.Getenv("SOAK")
	if text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("SOAK: %v", err)
		}
	} else {
		t.Parallel()
	}
	dir := t.TempDir()
	r := startLoadRelay(t, "", "--exempt", "127.0.0.1/32", "--tenant-metrics", "--accounting", filepath.Join(dir, "circuits"), "--log-level", "warn", "--drain", "0s")
	c := newChurn(t, r, text != "")
	r.admit(c.list...)
	before := c.rest(t) // a first round makes what is kept
	c.run(t, long)
	var now soakHolds
	var more []string
	deadline := time.NewTimer(2*wire.ExecutorIdle + patience)
	defer deadline.Stop()
	look := time.NewTicker(500 * time.Millisecond)
	defer look.Stop()
	for {
		now = r.holds()
		if more = now.more(before); len(more) == 0 {
			break
		}
		select {
		case <-look.C:
			continue
		case <-deadline.C:
			stacks, _ := r.get("/debug/pprof/goroutine?debug=1")
			t.Fatalf("after %v the relay still holds:\n%s\n%s", long, strings.Join(more, "\n"), stacks)
		}
	}
	t.Logf("%v: %v", long, c.counts())
	t.Logf("goroutines %.0f, before %.0f; descriptors %.0f, before %.0f; heap %.1f MiB, before %.1f; %d gauges as before",
		now.goroutines, before.goroutines, now.descriptors, before.descriptors, now.heap/(1<<20), before.heap/(1<<20), len(before.gauges))
	if text != "" { // in five seconds on a busy machine chance leaves something out
		c.wantAll(t)
	}
}

// rest runs a short round and returns what is held after it.
func (c *churn) rest(t *testing.T) soakHolds {
	t.Helper()
	before := c.relay.holds()
	kill := c.kill
	c.kill = false
	c.run(t, time.Second)
	c.kill = kill
	var now soakHolds
	// Nobody is there as at the beginning; what is kept besides is what is compared with.
	if !eventually(func() bool {
		now = c.relay.holds()
		return now.gauges["postern_relay_circuits"] == 0 && now.gauges["postern_relay_connections_unadmitted"] == 0 && now.gauges["postern_relay_handshakes_in_flight"] == 0 && now.gauges[`postern_relay_connections{role="client"}`] == 0 &&
			now.gauges[`postern_relay_connections{role="executor"}`] == 0 && now.goroutines <= before.goroutines+2
	}) {
		t.Fatalf("the relay does not come to rest: %+v, at the beginning %+v", now, before)
	}
	return now
}

// soakList is a tenants file with a tenant of each rate, and who is in it.
func soakList(t *testing.T, rates []string, executors, clients int) (list []string, members [][]*keys.PrivateKey) {
	t.Helper()
	for n, rate := range rates {
		list = append(list, strings.TrimSpace(fmt.Sprintf("tenant t%d %s", n, rate)))
		var all []*keys.PrivateKey
		for i := range executors + clients {
			kind, word := keys.Executor, "exec"
			if i >= executors {
				kind, word = keys.Client, "client"
			}
			key := newLoadKey(t, kind)
			list = append(list, fmt.Sprintf("%s %v m%d", word, key.Public(), i))
			all = append(all, key)
		}
		members = append(members, all)
	}
	return list, members
}
