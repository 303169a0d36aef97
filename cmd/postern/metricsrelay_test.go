//go:build linux

package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// movement is an event, and the series that it moves, without their prefix.
type movement struct {
	event string
	do    func()
	moves []string
}

// unmoved are the families that no event of the test moves, and why.
var unmoved = map[string]string{
	"build_info":               "constant",
	"udp_receive_buffer_bytes": "a property of the socket",
	"window_bytes_limit":       "a property of the machine",
	"quic_lost_packets_total":  "loopback loses nothing but what a full socket drops, and QUIC says when it has noticed",
}

// Each family of a relay is moved by a real event on a real process, or listed with the reason why not.
func TestEachFamilyOfARelayIsMovedByAnEvent(t *testing.T) {
	t.Parallel()
	w := newWatchedRelay(t, "--tenant-metrics", "--drain", "5m", "--accounting", t.TempDir()+"/accounting")
	s := &relayStory{watchedRelay: w}
	s.admitAll()
	moved := play(t, "postern_relay_", w.series, slices.Concat(
		s.connecting(), s.carrying(), s.limiting(), s.executors(), s.refusing(), s.strangers(), s.operating(), s.draining()))
	for name := range unmoved {
		if moved["postern_relay_"+name] {
			t.Errorf("%s is listed as unmoved, and moves", name)
		}
		moved["postern_relay_"+name] = true
	}
	wantSameFamilies(t, moved, slices.Collect(maps.Keys(s.all)))
	for name := range unmoved {
		if _, ok := s.all["postern_relay_"+name]; !ok {
			t.Errorf("%s is listed as unmoved, and is not shown", name)
		}
	}
	s.finish()
}

// wantSameFamilies finds families that no event moves, and events of families that are not there.
func wantSameFamilies(t *testing.T, moved map[string]bool, shown []string) {
	t.Helper()
	slices.Sort(shown)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(moved)), shown); diff != "" {
		t.Errorf("families that the events know (-), and those that are shown (+):\n%s", diff)
	}
}

// play lets each event happen, and waits until it has moved its series: counters grow, the others change. It returns
// the families that have moved.
func play(t *testing.T, prefix string, read func() map[string]float64, events []movement) map[string]bool {
	t.Helper()
	start, moved := read(), make(map[string]bool)
	for _, m := range events {
		before := read()
		if m.do == nil { // it has been going on since the start
			before = start
		} else {
			m.do()
		}
		var still []string
		if !eventually(func() bool {
			after := read()
			still = slices.DeleteFunc(slices.Clone(m.moves), func(name string) bool {
				was, now := before[prefix+name], after[prefix+name]
				return now > was || now != was && !strings.Contains(name, "_total")
			})
			return len(still) == 0
		}) {
			t.Fatalf("%s: does not move %q", m.event, still)
		}
		for _, name := range m.moves {
			moved[familyOf(prefix+name)] = true
		}
	}
	return moved
}

// familyOf is the family of a sample: its name without labels, and without what a histogram adds.
func familyOf(series string) string {
	name, _, _ := strings.Cut(series, "{")
	for _, suffix := range []string{"_count", "_sum", "_bucket"} {
		name = strings.TrimSuffix(name, suffix)
	}
	return name
}

// finish ends the circuit that the drain waits for.
func (s *relayStory) finish() {
	s.t.Helper()
	endCircuit(s.near, s.far)
	if err := <-s.relay.ended; err != nil {
		s.t.Errorf("the drained relay ends with %v", err)
	}
	s.relay.cmd = nil // it has ended
}

func (s *relayStory) draining() []movement {
	return []movement{{"it is told to end", func() {
		s.near, s.far = joinedCircuit(s.t, s.c, s.e, s.executor)
		s.all = s.families()
		if err := s.relay.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			s.t.Fatal(err)
		}
	}, []string{"ready", "draining", `goaways_total{role="client"}`, `goaways_total{role="executor"}`}}}
}
