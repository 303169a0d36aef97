package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// attachFlags are the flags of `postern attach`.
type attachFlags struct {
	stdin, control, quiet, json bool
	after                       uint64
	owner, escape               string
	escapeChar                  byte
	reconnect                   patienceFlag
}

func newAttach(std stdio) *cobra.Command {
	var o attachFlags
	cmd := &cobra.Command{
		Use:   "attach [flags] EXECUTOR ID",
		Short: "Watch an exec, or take it over",
		Long: `Print what an exec has written so far, then what it writes, and exit as the command does.
ID may be the beginning of one, of at least 4 digits.

Any number may watch at once; a slow one misses output, which is said, and holds nobody up.
Ctrl-C ends the watching, not the command. With --control this process takes the exec over
from whoever has it: signals reach the command. With -i its standard input does too, if the
exec was started with -i.

On a terminal with -i, at the beginning of a line, ~. leaves and the command goes on; ~? lists
the escapes.

Exit codes are those of exec; 130 and 143 when a signal ended the watching.`,
		Example: `  id=$(postern exec -d builder -- make -j4)
  postern attach builder $id
  postern attach -i builder 5f3c`,
		RunE: func(_ *cobra.Command, args []string) error {
			word, err := o.check(args)
			if err != nil {
				return err
			}
			l := newLink(args[0], std, o.quiet)
			return onExecutor(args[0], func(env client.Environment) error {
				if o.control {
					return takeOver(std, env, l, word, o)
				}
				return underSignals(func(ctx context.Context) error { return watch(ctx, std, env, l, word, o) })
			}, o.reconnect.tune(l))
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.stdin, "stdin", "i", false, "take the exec over and pass standard input on")
	f.BoolVar(&o.control, "control", false, "take the exec over: signals reach the command")
	f.Uint64Var(&o.after, "after", 0, "begin after this number of the log, which --json shows as seq")
	f.StringVar(&o.owner, "owner", "", "whose exec, where several have one of this id")
	f.StringVar(&o.escape, "escape", "~", "with -i on a terminal: the character that begins an escape, or none")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing of postern's own but errors")
	f.BoolVar(&o.json, "json", false, "print one JSON object a line: started, output, gap, exit")
	o.reconnect.add(f)
	return cmd
}

func (o *attachFlags) check(args []string) (word execWord, err error) {
	if len(args) != 2 {
		return "", fmt.Errorf("want an executor and an exec id, got %d words", len(args))
	}
	if o.escapeChar, err = parseEscape(o.escape); err != nil {
		return "", err
	}
	o.control = o.control || o.stdin
	if err = o.reconnect.check(); err != nil {
		return "", err
	}
	return parseExecWord(args[1])
}

// sink is where the log goes, after word of what was attached to.
func (o attachFlags) sink(std stdio, n *notes, executor string, i wire.ExecInfo) (sink, error) {
	if !o.json {
		return files{std.out, std.err, n}, nil
	}
	events := jsonEvents{newJSONLines(std.out)}
	return events, events.started(executor, i)
}

// takeOver is attaching with control.
func takeOver(std stdio, env client.Environment, l *link, word execWord, o attachFlags) error {
	c := newConsole(std, l)
	defer c.signals.stop()
	process, err := c.open(func(ctx context.Context) (wire.ExecProcess, error) {
		return attach(ctx, env.Backend, word, wire.AttachOptions{After: o.after, Control: true, Owner: o.owner})
	})
	if err != nil {
		return refused(env.Name, err)
	}
	info := process.Info()
	to, err := o.sink(std, l.notes, env.Name, info)
	if err != nil {
		process.Close()
		return ended{outcome: outcome{broken: err}, name: env.Name, info: info}.exit()
	}
	raw := info.TTY && o.stdin && !o.json
	if raw && c.terminal.exists() {
		size := c.terminal.size()
		go process.Resize(context.Background(), size) // an ended command has no size
	}
	end, err := c.attend(process, control{
		after: o.after, to: to, stdin: o.stdin, input: info.Input, escape: o.escapeChar, raw: raw, typed: raw,
	})
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	return ended{outcome: end, name: env.Name, info: info, quiet: o.quiet}.exit()
}

// watch is attaching without control.
func watch(ctx context.Context, std stdio, env client.Environment, l *link, word execWord, o attachFlags) error {
	process, err := attach(ctx, env.Backend, word, wire.AttachOptions{After: o.after, Owner: o.owner})
	if err != nil {
		return refused(env.Name, err)
	}
	defer process.Close()
	info := process.Info()
	if !info.Detach && !o.quiet {
		warnOfGrace(ctx, env, info, l.notes)
	}
	to, err := o.sink(std, l.notes, env.Name, info)
	if err != nil {
		return ended{outcome: outcome{broken: err}, name: env.Name, info: info}.exit()
	}
	end := following{process: process, after: o.after, to: to}.run(ctx)
	return ended{outcome: end, name: env.Name, info: info, quiet: o.quiet}.exit()
}

// attach finds an exec and makes a handle on it.
func attach(ctx context.Context, backend wire.ExecBackend, word execWord, o wire.AttachOptions) (wire.ExecProcess, error) {
	ref, err := word.find(ctx, backend, o.Owner)
	if err != nil {
		return nil, err
	}
	o.Owner = ref.Owner
	return backend.Attach(ctx, ref.ID, o)
}

// warnOfGrace tells who watches an exec that nobody controls that it will not live for long. Only
// a list says whether that is so.
func warnOfGrace(ctx context.Context, env client.Environment, watched wire.ExecInfo, n *notes) {
	infos, err := env.Backend.List(ctx)
	if err != nil {
		return // then watching fails too, and says why
	}
	for _, i := range infos {
		if i.ID == watched.ID && i.Owner == watched.Owner && !i.Attached && i.Exit == nil {
			n.say("nobody controls this exec: it ends after its grace of %v unless somebody takes it over: postern attach --control %s %s",
				i.Grace, env.Name, i.ID)
		}
	}
}

// refused is the end of a verb that could not reach an exec.
func refused(name string, err error) error {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	if errors.Is(err, wire.ErrLost) {
		return failf(exitLost, "%s: %v", name, err)
	}
	return withCode(startCode(err), explain(name, err))
}
