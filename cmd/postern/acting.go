package main

import (
	"context"

	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// acting is what the verbs have in common that do something to execs without a handle.
type acting struct {
	owner string
	json  bool
}

func (a *acting) add(f *pflag.FlagSet) {
	f.StringVar(&a.owner, "owner", "", "whose execs, where several have one of this id")
	f.BoolVar(&a.json, "json", false, "print one JSON object a line: what was done to each")
}

// each does something to every exec, also after one that fails. Each failure is one line, and the
// first one has the exit code: 1 where the exec is in no state for it, else as for exec.
func (a acting) each(ctx context.Context, std stdio, env client.Environment, words []execWord, do func(context.Context, wire.ExecRef) (actedJSON, error)) error {
	n := &notes{w: std.err}
	lines := newJSONLines(std.out)
	code := 0
	for _, word := range words {
		ref, err := word.find(ctx, env.Backend, a.owner)
		var done actedJSON
		if err == nil {
			done, err = do(ctx, ref)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			done = actedJSON{Error: newErrorJSON(err)}
			n.warn("%v", refusedTo(env.Name, ref, err))
			if code == 0 {
				code = actCode(err)
			}
		}
		if done.ID, done.Executor = string(word), env.Name; !ref.ID.IsZero() {
			done.ID = ref.ID.String()
		}
		if a.json {
			if err := lines.write(done); err != nil {
				return failf(exitFailed, "%v", err)
			}
		}
	}
	if code != 0 {
		return &exitError{code, ""}
	}
	return nil
}

// refusedTo says what could not be done. The executor's own words need not name the exec.
func refusedTo(name string, ref wire.ExecRef, err error) error {
	if wire.CodeOf(err) == wire.CodeEnded {
		err = wire.Errorf(wire.CodeEnded, "exec %s has ended already", ref.ID)
	}
	return refused(name, err)
}

func actCode(err error) int {
	switch wire.CodeOf(err) {
	case wire.CodeEnded, wire.CodeBusy:
		return exitFailed
	}
	return startCode(err)
}
