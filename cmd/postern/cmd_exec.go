package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// execFlags are the flags of `postern exec`.
type execFlags struct {
	stdin, tty, quiet bool
	dir, sandbox      string
	sandboxGiven      bool // on the command line: then it is said when the executor gives less
	env               []string
	timeout, grace    time.Duration
	killAfter         time.Duration
	roots             []string
	view              string
	limits            limitFlags
	explain           bool
}

func newExec(std stdio) *cobra.Command {
	var o execFlags
	cmd := &cobra.Command{
		Use:   "exec [flags] EXECUTOR -- CMD [ARG...]",
		Short: "Run a command on an executor",
		Long: `Run a command on an executor and exit as it does. Every word after -- reaches the command
as it is: there is no shell in between, so for pipes and variables run one:
postern exec box -- sh -c 'echo $HOME | wc -c'.

Exit codes: the command's own; 128+n when signal n ended it; 124 when --timeout did; 125
when it was not started; 126 when it is not executable; 127 when there is no such command;
255 when the connection was lost and the outcome is not known, or the output could not be
written here.`,
		Example: `  postern exec builder -- make -j4
  tar c src | postern exec -i builder -- tar x
  postern exec -it builder -- bash`,
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
			o.sandboxGiven = cmd.Flags().Changed("sandbox")
			params, err := o.params(args[1:])
			if err != nil {
				return err
			}
			h, err := findHome()
			if err != nil {
				return failf(exitRefused, "%v", err)
			}
			c, backend, err := h.connect(args[0])
			if err != nil {
				return failf(exitRefused, "%v", err)
			}
			defer c.Close()
			return runExec(std, client.Environment{Name: args[0], Backend: backend}, params, o)
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
	f.BoolVar(&o.explain, "explain", false, "print the policy in force to stderr before the command's output")
	o.limits.add(f)
	f.DurationVar(&o.killAfter, "kill-after", 0, "between TERM and KILL when the command is ended (default 5s)")
	return cmd
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
	p := wire.ExecParams{
		Argv: argv, Dir: o.dir, Sandbox: mode, Roots: o.roots, View: view, Limits: limits,
		Timeout: o.timeout, Grace: o.grace, KillAfter: o.killAfter,
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
func runExec(std stdio, env client.Environment, p wire.ExecParams, o execFlags) error {
	cmd := env.Command(p.Argv...)
	cmd.Params = p
	cmd.Stdout, cmd.Stderr = std.out, std.err
	if o.stdin {
		cmd.Stdin = std.in
	}
	signals := watchSignals()
	defer signals.stop()
	terminal := &terminal{file: std.in}
	if o.tty {
		size := terminal.size()
		cmd.Params.TTY = &size
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	started := signals.untilStarted(cancel)
	err := cmd.Start(ctx)
	if first := started(); first != nil && err != nil {
		return &exitError{128 + int(*first), ""}
	}
	if err != nil {
		return failf(startCode(err), "%v", explain(env.Name, err))
	}
	if given := cmd.Process().Info().Sandbox; given != p.Sandbox && o.sandboxGiven && !o.quiet {
		fmt.Fprintf(std.err, "postern: %s allows no more than %s, so that is the sandbox of this command\n", env.Name, given)
	}
	if o.explain {
		fmt.Fprint(std.err, explainPolicy(cmd.Process().Info()))
	}
	if o.tty && o.stdin {
		if err := terminal.raw(); err != nil {
			return failf(exitRefused, "the terminal cannot be set to raw mode: %v", err)
		}
		defer terminal.restore()
	}
	signals.forward(ctx, cmd.Process(), terminal)
	status, err := cmd.Wait(ctx)
	terminal.restore()
	return exitOf(env.Name, status, err, o)
}

// exitOf turns the end of a command into the end of this process.
func exitOf(name string, status wire.ExitStatus, err error, o execFlags) error {
	switch {
	case err != nil && status.Cause == 0:
		return failf(exitLost, "%s: %v", name, err)
	case err != nil && errors.Is(err, syscall.EPIPE):
		return &exitError{128 + int(syscall.SIGPIPE), ""} // as a command in a local pipe would end
	case err != nil:
		return failf(exitLost, "%s: the command ended (%v), but its output could not be written here: %v", name, status, err)
	}
	note := ""
	switch {
	case o.quiet:
	case status.Cause == wire.CauseTimedOut:
		note = fmt.Sprintf("the command was ended after %v", o.timeout)
	case status.Cause == wire.CauseOOM:
		note = "the command was ended: out of memory"
	case status.Cause == wire.CauseRevoked:
		note = "the command was ended: the executor removed this client's key"
	case status.Cause == wire.CauseLimit:
		note = fmt.Sprintf("the command was ended: limit reached: %v", status.Hit)
	case status.Hit != 0:
		note = fmt.Sprintf("the command ran into a limit: %v", status.Hit)
	case status.PipesHeld:
		note = "something the command started still held its output: the end of it may be missing"
	}
	if code := status.ShellCode(); code != 0 || note != "" {
		return &exitError{code, note}
	}
	return nil
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
		return fmt.Errorf("executor %s cannot be reached: %w", name, err)
	}
	return fmt.Errorf("%s: %w", name, err)
}
