package main

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/postern-relay/postern/wire"
)

// ended is the end of attending to an exec, to be told to whoever called this process.
type ended struct {
	outcome
	name    string // of the executor
	info    wire.ExecInfo
	quiet   bool
	timeout time.Duration // that was asked for here
	whole   bool          // output that is missing is a failure
}

// exit turns the end into that of this process.
func (e ended) exit() error {
	switch {
	case e.err != nil:
		return e.unfinished()
	case errors.Is(e.broken, syscall.EPIPE):
		return &exitError{128 + int(syscall.SIGPIPE), ""} // as a command in a local pipe would end
	case e.broken != nil && e.status == nil:
		return failf(exitLost, "%s: the output could not be written here: %v", e.name, e.broken)
	case e.broken != nil:
		return failf(exitLost, "%s: the command ended (%v), but its output could not be written here: %v", e.name, e.status, e.broken)
	case e.status.Cause == wire.CauseExecutorLost:
		return failf(exitLost, "%s: executor restarted; outcome unknown", e.name)
	case e.whole && e.missing && e.status.Success():
		return failf(exitLost, "%s: the command ended (%v), but some of its output is missing", e.name, e.status)
	}
	note := ""
	if !e.quiet {
		note = e.note()
	}
	if code := e.status.ShellCode(); code != 0 || note != "" {
		return &exitError{code, note}
	}
	return nil
}

// unfinished is for an exec that goes on, or of which nobody knows.
func (e ended) unfinished() error {
	again := fmt.Sprintf("postern attach %s %s", e.name, e.info.ID)
	switch {
	case e.err == errLeft && e.quiet:
		return nil
	case e.err == errLeft:
		limit := ""
		if !e.info.Detach {
			limit = fmt.Sprintf(" for %v", e.info.Grace)
		}
		return failf(0, "left %s; exec %s goes on%s: postern attach -i %s %s", e.name, e.info.ID, limit, e.name, e.info.ID)
	case e.err == errGaveUp, errors.Is(e.err, wire.ErrLost):
		return failf(exitLost, "%s: %v; exec %s may go on there: %s", e.name, e.err, e.info.ID, again)
	case wire.CodeOf(e.err) == wire.CodeSuperseded:
		return failf(exitLost, "%s: %v; to watch: %s", e.name, e.err, again)
	}
	return failf(exitLost, "%s: %v", e.name, e.err)
}

// note is what is worth saying about how the command ended.
func (e ended) note() string {
	s := e.status
	switch {
	case s.Cause == wire.CauseTimedOut && e.timeout > 0:
		return fmt.Sprintf("the command was ended after %v", e.timeout)
	case s.Cause == wire.CauseTimedOut:
		return "the command was ended: its time was over"
	case s.Cause == wire.CauseOOM:
		return "the command was ended: out of memory"
	case s.Cause == wire.CauseRevoked:
		return "the command was ended: the executor removed this client's key"
	case s.Cause == wire.CauseLimit:
		return fmt.Sprintf("the command was ended: limit reached: %v", s.Hit)
	case s.Hit != 0:
		return fmt.Sprintf("the command ran into a limit: %v", s.Hit)
	case len(s.Denials) > 0 && !s.Success():
		return denialNote(s.Denials)
	case s.PipesHeld:
		return "something the command started still held its output: the end of it may be missing"
	}
	return ""
}

// denialNote is one sentence about what the sandbox refused; the first is the likeliest reason.
func denialNote(all []wire.Denial) string {
	text := "sandbox: " + oneLine(all[0].String())
	if n := len(all) - 1; n > 0 {
		text += fmt.Sprintf(" (and %d more)", n)
	}
	return text
}

// explain adds what to do next to what went wrong.
func explain(name string, err error) error {
	switch {
	case errors.Is(err, wire.ErrLost):
		return fmt.Errorf("%s: the connection was lost and the command may be running: %w", name, err)
	case wire.CodeOf(err) == wire.CodeUnreachable:
		if e, ok := errors.AsType[*wire.Error](err); ok && e.Text == "" { // a reset overtook the relay's words
			err = errors.New("the executor is not connected to the relay, or the relay does not let this client use it")
		}
		return fmt.Errorf("executor %s cannot be reached: %w%s", name, err, pinnedHint(name))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// pinnedHint is for who was away while a key was replaced: the other end looks as if it were not there.
func pinnedHint(name string) string {
	h, err := findHome()
	if err != nil {
		return ""
	}
	known, err := h.known()
	if err != nil {
		return ""
	}
	e, ok := known.Lookup(name)
	if !ok {
		return ""
	}
	return fmt.Sprintf(" (pinned here are %s and %s; if one of these was replaced meanwhile: postern executors, postern known replace)", e.Key, e.Relay.Key)
}
