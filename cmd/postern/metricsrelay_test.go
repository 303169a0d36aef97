//go:build linux

package main

import (
	"maps"
	"slices"
	"strings"
	"syscall"
	"testing"
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
	start, moved := w.series(), make(map[string]bool)
	for _, m := range slices.Concat(s.connecting(), s.carrying(), s.limiting(), s.executors(), s.refusing(), s.strangers(), s.operating(), s.draining()) {
		before := w.series()
		if m.do == nil { // it has been going on since the start
			before = start
		} else {
			m.do()
		}
		var still []string
		if !eventually(func() bool {
			after := w.series()
			still = slices.DeleteFunc(slices.Clone(m.moves), func(name string) bool {
				was, now := before["postern_relay_"+name], after["postern_relay_"+name]
				return now > was || now != was && !strings.Contains(name, "_total")
			})
			return len(still) == 0
		}) {
			t.Fatalf("%s: does not move %q", m.event, still)
		}
		for _, name := range m.moves {
			moved[familyOf("postern_relay_"+name)] = true
		}
	}
	for name := range unmoved {
		if moved["postern_relay_"+name] {
			t.Errorf("%s is listed as unmoved, and moves", name)
		}
		moved["postern_relay_"+name] = true
	}
	if got, want := slices.Sorted(maps.Keys(moved)), slices.Sorted(maps.Keys(s.all)); !slices.Equal(got, want) {
		t.Errorf("the events and the list of the unmoved know %q,\nthe relay shows %q", got, want)
	}
	for name := range unmoved {
		if _, ok := s.all["postern_relay_"+name]; !ok {
			t.Errorf("%s is listed as unmoved, and is not shown", name)
		}
	}
	s.finish()
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
