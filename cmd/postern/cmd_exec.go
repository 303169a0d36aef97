package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/wire"
)

// execFlags are the flags of `postern exec`.
type execFlags struct {
	stdin, tty, quiet bool
	dir, sandbox      string
	sandboxGiven      bool // on the command line: then it is said when the executor gives less
	idGiven           bool
	env               []string
	timeout, grace    time.Duration
	killAfter         time.Duration
	roots             []string
	view              string
	network, session  string
	networkGiven      bool
	limits            limitFlags
	explain           bool
	id                string
	detach, json      bool
	graceGiven        bool
	onFull            string
	escape            string
	escapeChar        byte
	reconnect         patienceFlag
}

func newExec(std stdio) *cobra.Command {
	var o execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] EXECUTOR -- CMD [ARG...]",
		Short: "Run a command on an executor",
		Long: `Run a command on an executor and exit as it does. Every word after -- reaches the command
as it is: there is no shell in between, so for pipes and variables run one:
postern exec box -- sh -c 'echo $HOME | wc -c'.

With -d the command is started and left running: ps, attach, logs, wait, kill and rm are for
it. With -d -i its standard input stays open for attach -i; nothing is read here. On a terminal
with -it, at the beginning of a line, ~. leaves the command running, and ~? lists the escapes.

When the connection is lost the command goes on, and this process tries to come back to it.

Exit codes: the command's own; 128+n when signal n ended it; 124 when --timeout did; 125
when it was not started; 126 when it is not executable; 127 when there is no such command;
255 when the connection was lost and the outcome is not known, or the output could not be
written here.`,
		Example: `  postern exec builder -- make -j4
  tar c src | postern exec -i builder -- tar x
  postern exec -it builder -- bash
  postern exec -d builder -- make -j4`,
		RunE: func(cmd *cobra.Command, args []string) error {
			dash := cmd.ArgsLenAtDash()
			switch {
			case dash < 0:
				return errors.New("put -- between the executor and the command")
			case dash != 1:
				return fmt.Errorf("want one executor before --, got %d words", dash)
			case len(args) < 2 || args[1] == "":
				return errors.New("no command after --")
			}
			o.idGiven = cmd.Flags().Changed("id") // an empty one is a variable that was not set
			o.sandboxGiven = cmd.Flags().Changed("sandbox")
			o.networkGiven = cmd.Flags().Changed("net")
			o.graceGiven = cmd.Flags().Changed("grace")
			if err := o.check(); err != nil {
				return err
			}
			params, err := o.params(args[1:])
			if err != nil {
				return err
			}
			l := newLink(args[0], std, o.quiet)
			return onExecutor(args[0], func(env client.Environment) error {
				return runExec(std, env, l, params, o)
			}, o.reconnect.tune(l))
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input on")
	f.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "print nothing of postern's own but errors")
	f.StringVarP(&o.dir, "workdir", "w", "", "folder to start in; default is the executor's first workspace")
	f.StringArrayVarP(&o.env, "env", "e", nil, "set K=V, or pass K on from here")
	f.StringVar(&o.sandbox, "sandbox", "workspace-write", "read-only, workspace-write or full-access; the executor may narrow it")
	f.DurationVar(&o.timeout, "timeout", 0, "end the command after this long, counted on the executor")
	f.DurationVar(&o.grace, "grace", 0, "how long the command lives on when this client is gone (default: the executor's, 2m)")
	f.StringArrayVar(&o.roots, "workspace", nil, "write only this workspace, or a folder in one; may be repeated")
	f.StringVar(&o.view, "view", "full", "full, or minimal: only the system's folders and the workspaces")
	f.StringVar(&o.network, "net", "none", "none, allow=HOST[:PORT],... (these hosts, by the executor's proxy) or host (the executor's own)")
	f.StringVar(&o.session, "net-session", "", "share a network with your other commands that name the same session: one reaches what another serves")
	f.BoolVar(&o.explain, "explain", false, "print the policy in force to stderr before the command's output")
	o.limits.add(f)
	f.StringVar(&o.id, "id", "", "id of the exec, 32 hexadecimal digits: the same command under the same id is started once")
	f.BoolVarP(&o.detach, "detach", "d", false, "start the command, print the id of the exec and leave it running")
	f.BoolVar(&o.json, "json", false, "with -d: print the id as JSON")
	f.StringVar(&o.onFull, "on-full", "", "when nobody takes the output: block the command, or drop the oldest (default: drop with -d)")
	f.StringVar(&o.escape, "escape", "~", "with -it: the character that begins an escape, or none")
	o.reconnect.add(f)
	f.DurationVar(&o.killAfter, "kill-after", 0, "between TERM and KILL when the command is ended (default 5s)")
	return cmd
}

// check is for what is no part of the request.
func (o *execFlags) check() (err error) {
	if o.escapeChar, err = parseEscape(o.escape); err != nil {
		return err
	}
	return o.reconnect.check()
}

func (o execFlags) params(argv []string) (wire.ExecParams, error) {
	mode, err := wire.ParseSandboxMode(o.sandbox)
	if err != nil {
		return wire.ExecParams{}, fmt.Errorf("--sandbox: %w", err)
	}
	view, err := wire.ParseView(o.view)
	if err != nil {
		return wire.ExecParams{}, fmt.Errorf("--view: %w", err)
	}
	limits, err := o.limits.get()
	if err != nil {
		return wire.ExecParams{}, err
	}
	for name, d := range map[string]time.Duration{"timeout": o.timeout, "grace": o.grace, "kill-after": o.killAfter} {
		if d < 0 {
			return wire.ExecParams{}, fmt.Errorf("--%s %v: a time cannot be negative", name, d)
		}
	}
	switch {
	case o.json && !o.detach:
		return wire.ExecParams{}, errors.New("--json needs -d: without it stdout is the command's")
	case o.detach && o.graceGiven:
		return wire.ExecParams{}, errors.New("--grace does not count with -d: use --timeout to bound the command")
	}
	network, err := o.net()
	if err != nil {
		return wire.ExecParams{}, err
	}
	p := wire.ExecParams{
		Network: network,
		Argv:    argv, Dir: o.dir, Sandbox: mode, Roots: o.roots, View: view, Limits: limits,
		Timeout: o.timeout, Grace: o.grace, KillAfter: o.killAfter, Detach: o.detach, Stdin: o.stdin,
	}
	if p.ID = wire.NewExecID(); o.idGiven {
		if p.ID, err = wire.ParseExecID(o.id); err != nil {
			return wire.ExecParams{}, fmt.Errorf("--id: %w", err)
		}
	}
	if o.onFull != "" {
		if p.OnFull, err = wire.ParseOnFull(o.onFull); err != nil {
			return wire.ExecParams{}, fmt.Errorf("--on-full: %w", err)
		}
	}
	if o.tty {
		p.Env = append(p.Env, "TERM="+terminalName())
	}
	for _, kv := range o.env {
		kv, err := envEntry(kv)
		if err != nil {
			return wire.ExecParams{}, err
		}
		if kv != "" {
			p.Env = append(p.Env, kv)
		}
	}
	return p, nil
}

// net is the network to ask for: none that is named where nothing was said, since full access has one all the same.
func (o execFlags) net() (wire.Network, error) {
	if !o.networkGiven && o.session == "" {
		return wire.Network{}, nil
	}
	n, err := executor.ParseNetwork(o.network, false)
	if err != nil {
		return wire.Network{}, fmt.Errorf("--net: %w", err)
	}
	n.Session = o.session
	return n.Wire(), nil
}

// envEntry is K=V as it is, and K with the value it has here, or nothing where it has none.
func envEntry(s string) (string, error) {
	for i := range len(s) {
		if s[i] == '=' {
			if i == 0 {
				break
			}
			return s, nil
		}
	}
	if s == "" || s[0] == '=' {
		return "", fmt.Errorf("--env %q: want NAME=VALUE, or NAME", s)
	}
	if v, ok := os.LookupEnv(s); ok {
		return s + "=" + v, nil
	}
	return "", nil
}

// runExec runs one command with the files of this process, and returns its exit as an *exitError.
func runExec(std stdio, env client.Environment, l *link, p wire.ExecParams, o execFlags) error {
	c := newConsole(std, l)
	defer c.signals.stop()
	if o.tty {
		size := c.terminal.size()
		p.TTY = &size
	}
	process, err := c.open(func(ctx context.Context) (wire.ExecProcess, error) { return env.Backend.Start(ctx, p) })
	if errors.Is(err, wire.ErrLost) {
		return failf(exitLost, "%s: the connection was lost and the command may be running as exec %s: %v", env.Name, p.ID, err)
	}
	if err != nil {
		return withCode(startCode(err), explain(env.Name, err))
	}
	info := process.Info()
	if info.Sandbox != p.Sandbox && o.sandboxGiven {
		l.notes.say("%s allows no more than %s, so that is the sandbox of this command", env.Name, info.Sandbox)
	}
	if o.explain {
		fmt.Fprint(std.err, explainPolicy(info))
	}
	if o.detach {
		defer process.Close()
		return o.printID(std, env.Name, info)
	}
	end, err := c.attend(process, control{
		to: files{std.out, std.err, l.notes}, stdin: o.stdin, escape: o.escapeChar, raw: o.tty,
	})
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	return ended{name: env.Name, info: info, outcome: end, quiet: o.quiet, timeout: o.timeout, whole: true}.exit()
}

// printID is all that exec -d prints.
func (o execFlags) printID(std stdio, executor string, i wire.ExecInfo) (err error) {
	if o.json {
		err = newJSONLines(std.out).write(startedJSON{i.ID.String(), executor})
	} else {
		_, err = fmt.Fprintln(std.out, i.ID)
	}
	if err != nil {
		return failf(exitLost, "%s: exec %s was started, but its id could not be written here: %v", executor, i.ID, err)
	}
	return nil
}
