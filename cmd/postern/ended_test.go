//go:build unix

package main

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

func TestEndOfAnExecIsTheEndOfTheProcess(t *testing.T) {
	t.Parallel()
	id := listed(t, "me", "aaaa0000000000000000000000000001").ID
	grace := wire.ExecInfo{ID: id, Grace: 2 * time.Minute}
	detached := wire.ExecInfo{ID: id, Detach: true}
	exit := func(s wire.ExitStatus) outcome { return outcome{status: &s} }
	with := func(o outcome, change func(*outcome)) outcome { change(&o); return o }
	ok, three := exit(wire.ExitStatus{Cause: wire.CauseExited}), exit(wire.ExitStatus{Cause: wire.CauseExited, Code: 3})
	for name, test := range map[string]struct {
		ended
		code int
		text string
	}{
		"zero":             {ended{outcome: ok}, 0, ""},
		"a code":           {ended{outcome: three}, 3, ""},
		"a signal":         {ended{outcome: exit(wire.ExitStatus{Cause: wire.CauseSignalled, Signal: "KILL"})}, 137, ""},
		"time limit":       {ended{outcome: exit(wire.ExitStatus{Cause: wire.CauseTimedOut, Signal: "TERM"}), timeout: time.Second}, 124, "the command was ended after 1s"},
		"its time limit":   {ended{outcome: exit(wire.ExitStatus{Cause: wire.CauseTimedOut, Signal: "TERM"})}, 124, "the command was ended: its time was over"},
		"quiet":            {ended{outcome: exit(wire.ExitStatus{Cause: wire.CauseTimedOut, Signal: "TERM"}), quiet: true}, 124, ""},
		"executor lost":    {ended{outcome: exit(wire.ExitStatus{Cause: wire.CauseExecutorLost}), quiet: true}, 255, "box: executor restarted; outcome unknown"},
		"missing, exec":    {ended{outcome: with(ok, func(o *outcome) { o.missing = true }), whole: true}, 255, "box: the command ended (exit status 0), but some of its output is missing"},
		"missing, failed":  {ended{outcome: with(three, func(o *outcome) { o.missing = true }), whole: true}, 3, ""},
		"missing, watched": {ended{outcome: with(ok, func(o *outcome) { o.missing = true })}, 0, ""},
		"closed output":    {ended{outcome: with(three, func(o *outcome) { o.broken = syscall.EPIPE })}, 141, ""},
		"full disk":        {ended{outcome: with(three, func(o *outcome) { o.broken = syscall.ENOSPC })}, 255, "box: the command ended (exit status 3), but its output could not be written here: no space left on device"},
		"viewer's disk":    {ended{outcome: outcome{broken: syscall.ENOSPC}}, 255, "box: the output could not be written here: no space left on device"},
		"lost":             {ended{outcome: outcome{err: wire.ErrLost}}, 255, "box: connection lost, outcome unknown; exec " + id.String() + " may go on there: postern attach box " + id.String()},
		"gave up":          {ended{outcome: outcome{err: errGaveUp}, quiet: true}, 255, "box: gave up waiting for the connection; exec " + id.String() + " may go on there: postern attach box " + id.String()},
		"superseded":       {ended{outcome: outcome{err: wire.Errorf(wire.CodeSuperseded, "another client took over")}}, 255, "box: another client took over; to watch: postern attach box " + id.String()},
		"revoked":          {ended{outcome: outcome{err: wire.Errorf(wire.CodeRevoked, "this client's key was removed")}}, 255, "box: this client's key was removed"},
		"left":             {ended{outcome: outcome{err: errLeft}, info: detached}, 0, "left box; exec " + id.String() + " goes on: postern attach -i box " + id.String()},
		"left, with grace": {ended{outcome: outcome{err: errLeft}}, 0, "left box; exec " + id.String() + " goes on for 2m0s: postern attach -i box " + id.String()},
		"left quietly":     {ended{outcome: outcome{err: errLeft}, quiet: true}, 0, ""},
	} {
		if test.name = "box"; test.info.ID.IsZero() {
			test.info = grace
		}
		code, text := 0, ""
		if e, ok := errors.AsType[*exitError](test.exit()); ok {
			code, text = e.code, e.text
		}
		if code != test.code || text != test.text {
			t.Errorf("%s: exit code %d and %q, want %d and %q", name, code, text, test.code, test.text)
		}
	}
}

func TestNotesFitATerminalInRawMode(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	n := &notes{w: &b}
	n.say("one %d\n\x1b", 1)
	n.raw.Store(true)
	n.say("two")
	n.quiet = true
	n.say("three")
	n.warn("four")
	if want := "postern: one 1 ?\n\r\npostern: two\r\n\r\npostern: four\r\n"; b.String() != want {
		t.Errorf("got %q, want %q", b.String(), want)
	}
}

func TestLostConnectionIsSaidOnceAndItsEndWhenItTook(t *testing.T) {
	t.Parallel()
	id := listed(t, "me", "aaaa0000000000000000000000000001").ID
	var b strings.Builder
	l := newLink("box", stdio{err: &b}, false)
	said := func(want string) {
		t.Helper()
		if b.String() != want {
			t.Errorf("got %q, want %q", b.String(), want)
		}
		b.Reset()
	}
	if n := l.count(0); n != 0 {
		t.Errorf("a signal on a working link counts as %d", n)
	}
	l.lost(id, wire.Errorf(wire.CodeTimeout, "no sign of life for 45s"))
	said(fmt.Sprintf("postern: connection to box lost: no sign of life for 45s; exec %s goes on there, reconnecting\n", id))
	l.lost(id, wire.ErrLost)
	said("")
	if n := l.count(l.count(0)); n != 2 {
		t.Errorf("the second signal on a lost link counts as %d", n)
	}
	said("postern: box gets the signal when the connection is back; another one gives up waiting\n")
	l.back(id, 3*time.Second)
	said("")
	if n := l.count(1); n != 0 {
		t.Errorf("a signal on a link that is back counts as %d", n)
	}
	l.lost(id, fmt.Errorf("relay is shutting down (%w)", wire.ErrLost))
	said(fmt.Sprintf("postern: connection to box lost: relay is shutting down; exec %s goes on there, reconnecting\n", id))
	l.back(id, 0)
	l.lost(id, wire.ErrLost)
	said(fmt.Sprintf("postern: connection to box lost; exec %s goes on there, reconnecting\n", id))
	l.back(id, 6*time.Second)
	said("postern: connection to box is back after 6s\n")
}
