package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postern-relay/postern/wire"
)

// jsonLines writes one JSON object a line. Names and values are an interface to programs: they
// may be added to, not changed.
type jsonLines struct{ encoder *json.Encoder }

func newJSONLines(w io.Writer) jsonLines {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return jsonLines{e}
}

func (j jsonLines) write(v any) error { return j.encoder.Encode(v) }

// startedJSON is what exec -d prints.
type startedJSON struct {
	ID       string `json:"id"`
	Executor string `json:"executor"`
}

// execJSON is one exec.
type execJSON struct {
	ID        string     `json:"id"`
	Executor  string     `json:"executor"`
	Owner     string     `json:"owner,omitempty"`
	State     string     `json:"state,omitempty"` // running, detached, ended
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	Exit      *exitJSON  `json:"exit,omitempty"`
	Command   string     `json:"command,omitempty"`
	TTY       bool       `json:"tty"`
	Detach    bool       `json:"detach"` // started with -d
	Sandbox   string     `json:"sandbox"`
	Last      uint64     `json:"last"` // highest number in the log
}

func newExecJSON(executor string, i wire.ExecInfo) execJSON {
	e := execJSON{
		ID: i.ID.String(), Executor: executor, Owner: i.Owner, StartedAt: i.Started.UTC(),
		State: execState(i), Command: i.Command, TTY: i.TTY, Detach: i.Detach, Sandbox: i.Sandbox.String(), Last: i.Last,
	}
	if !i.Ended.IsZero() {
		at := i.Ended.UTC()
		e.EndedAt = &at
	}
	if i.Exit != nil {
		exit := newExitJSON(*i.Exit)
		e.Exit = &exit
	}
	return e
}

// exitJSON is how a command ended.
type exitJSON struct {
	Code   int    `json:"exit_code"`        // as a shell shows it: 128+n for signal n
	Signal string `json:"signal,omitempty"` // without SIG
	Cause  string `json:"cause"`
	// Denials is what the sandbox refused, the likeliest reason of a failure first.
	Denials []denialJSON `json:"denials,omitempty"`
}

// denialJSON is one thing that the sandbox refused.
type denialJSON struct {
	Kind     string `json:"kind"`              // filesystem, network, syscall, limit
	Op       string `json:"op"`                // such as write, connect, or the name of a system call
	Subject  string `json:"subject,omitempty"` // a path, host:port
	Rule     string `json:"rule"`
	Evidence string `json:"evidence"`        // kernel, proxy, policy-and-errno, maybe
	Count    uint32 `json:"count,omitempty"` // if more than once
}

func newExitJSON(s wire.ExitStatus) exitJSON {
	e := exitJSON{Code: s.ShellCode(), Signal: string(s.Signal), Cause: strings.ReplaceAll(s.Cause.String(), " ", "_")}
	for _, d := range s.Denials {
		e.Denials = append(e.Denials, denialJSON{d.Kind.String(), d.Op, d.Subject, d.Rule, d.Evidence.String(), d.Count})
	}
	return e
}

// actedJSON is the answer about one exec that something was asked for.
type actedJSON struct {
	ID          string     `json:"id"`
	Executor    string     `json:"executor"`
	Signal      string     `json:"signal,omitempty"`      // was sent
	Terminating bool       `json:"terminating,omitempty"` // TERM was sent, and KILL will be
	Removed     bool       `json:"removed,omitempty"`
	Error       *errorJSON `json:"error,omitempty"`
}

// waitedJSON is how one exec ended that was waited for.
type waitedJSON struct {
	ID       string `json:"id"`
	Executor string `json:"executor"`
	*exitJSON
	Error *errorJSON `json:"error,omitempty"`
}

type errorJSON struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func newErrorJSON(err error) *errorJSON {
	return &errorJSON{wire.CodeOf(err).String(), oneLine(err.Error())}
}

// eventJSON is one event of a log.
type eventJSON struct {
	Event string `json:"event"` // started, output, gap, exit
	Seq   uint64 `json:"seq,omitempty"`
	*execJSON
	Stream string `json:"stream,omitempty"`
	Data   string `json:"data,omitempty"`        // output that is UTF-8
	Base64 []byte `json:"data_base64,omitempty"` // output that is not
	From   uint64 `json:"from,omitempty"`        // of a gap, which ends at seq
	Bytes  uint64 `json:"bytes,omitempty"`       // in a gap; absent: not known
	*exitJSON
}

// jsonEvents is a sink.
type jsonEvents struct{ jsonLines }

func (j jsonEvents) started(executor string, i wire.ExecInfo) error {
	e := newExecJSON(executor, i)
	return j.write(eventJSON{Event: "started", execJSON: &e})
}

func (j jsonEvents) output(c *wire.Chunk) error {
	e := eventJSON{Event: "output", Seq: c.Seq, Stream: c.Stream.String()}
	if utf8.Valid(c.Data) {
		e.Data = string(c.Data)
	} else {
		e.Base64 = c.Data
	}
	return j.write(e)
}

func (j jsonEvents) gap(g *wire.Gap) error {
	return j.write(eventJSON{Event: "gap", Seq: g.To, From: g.From, Bytes: g.Bytes})
}

func (j jsonEvents) exit(seq uint64, status wire.ExitStatus) error {
	e := newExitJSON(status)
	return j.write(eventJSON{Event: "exit", Seq: seq, exitJSON: &e})
}
