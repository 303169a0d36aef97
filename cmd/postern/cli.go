package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/wire"
)

// Exit codes of postern's own (DESIGN.md section 5 has the reasons). A command's own code
// is passed on as it is.
const (
	exitFailed   = 1   // a verb that runs no command
	exitUsage    = 2   // the same, for a wrong command line
	exitTimedOut = 124 // --timeout ended the command
	exitRefused  = 125 // the command was not started
	exitNotExec  = 126
	exitNotFound = 127
	exitLost     = 255 // the outcome is unknown
)

// stdio are the standard files of the process.
type stdio struct {
	in       *os.File
	out, err io.Writer
}

// exitError ends the program with a code. An empty text prints nothing.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// withCode is err with an exit code.
func withCode(code int, err error) error { return &exitError{code, err.Error()} }

func failf(code int, format string, args ...any) error {
	return &exitError{code, fmt.Sprintf(format, args...)}
}

// run is the program: it returns the exit code.
func run(args []string, in, out, errOut *os.File) int {
	stdout := &checkedWriter{w: out}
	root := newRoot(stdio{in, stdout, errOut})
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(errOut)
	cmd, err := root.ExecuteC()
	if err == nil && stdout.err != nil {
		err = failf(exitFailed, "%v", stdout.err)
	}
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*exitError](err)
	if !ok {
		code := exitUsage
		if runsCommands(cmd) {
			code = exitRefused
		}
		e = &exitError{code, fmt.Sprintf("%v (see: %s --help)", err, cmd.CommandPath())}
	}
	if e.text != "" {
		fmt.Fprintf(errOut, "postern: %s\n", strings.TrimRight(oneLine(e.text), "\n"))
	}
	return e.code
}

// checkedWriter remembers that a Write failed, for those who print and do not look.
type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

// runsCommands: the verb's exit code is that of a command, so none of ours may look like one.
func runsCommands(cmd *cobra.Command) bool {
	switch cmd.Name() {
	case "exec", "attach", "wait", "demo":
		return true
	}
	return false
}

// oneLine keeps an error on one line, and a peer's text from moving the cursor.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return '?'
		}
		return r
	}, s)
}

func newRoot(std stdio) *cobra.Command {
	root := &cobra.Command{
		Use:   "postern",
		Short: "Run sandboxed commands on machines that nothing can dial",
		Long: `postern runs sandboxed commands on machines that nothing can dial. An executor
on the machine dials out to a relay; a client reaches it through the relay, over
a channel that the relay cannot read.`,
		Example: `  postern demo                              see it work on this machine
  postern dev --state ~/.postern-dev        a relay and an executor to play with
  postern exec builder -- make -j4          run a command
  postern exec -d builder -- make -j4       start one; then: ps, attach, logs, wait, kill, rm`,
		SilenceErrors: true, SilenceUsage: true,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		newExec(std), newAttach(std), newPs(std), newLogs(std), newWait(std), newKill(std), newRm(std), newDemo(std), newDev(std), newRelay(std), newExecutor(std),
		newAgent(std), newToken(std), newExecutors(std), newKnown(std), newTenant(std), newKeygen(std), newPubkey(std), newSandbox(std), newVersion(std),
	)
	return root
}

// noWords refuses words that the verb would pass over. cobra's own check calls them commands.
func noWords(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("no words wanted, got %q", args[0])
	}
	return nil
}

// startCode is the exit code for a command that was not started, or may have been.
func startCode(err error) int {
	switch wire.CodeOf(err) {
	case wire.CodeNotFoundCmd:
		return exitNotFound
	case wire.CodeNotExec:
		return exitNotExec
	case wire.CodeUnknown, wire.CodeSuperseded, wire.CodeRevoked: // it exists, and somebody else knows its end
		return exitLost
	}
	return exitRefused
}
