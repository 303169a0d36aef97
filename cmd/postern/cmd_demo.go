package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

func newDemo(std stdio) *cobra.Command {
	return &cobra.Command{
		Use:   "demo [-- CMD [ARG...]]",
		Short: "See it work: a relay and an executor on loopback, and a short tour",
		Long: `Start a relay and an executor on loopback with throw-away keys, and run a short tour
through the real path. With a command, run that one instead, print only its output and exit
with its code. It ends by itself and leaves nothing behind.`,
		Example: `  postern demo
  postern demo -- sh -c 'id; touch /etc/x'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return errors.New("put -- before the command")
			}
			return runDemo(std, args)
		},
	}
}

// demoStart is how long the relay and the executor have to find each other.
const demoStart = 20 * time.Second

func runDemo(std stdio, argv []string) error {
	ctx, stop := untilSignal()
	defer stop()
	if report := sandbox.Probe(ctx, sandbox.Options{}); !report.OK() {
		return failf(exitRefused, "%v", &sandbox.UnsupportedError{Missing: missing(report)})
	}
	dir, err := os.MkdirTemp("", "postern-demo-")
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	defer os.RemoveAll(dir)
	n, err := openDev(devOptions{state: dir, listen: "127.0.0.1:0", max: wire.SandboxWorkspaceWrite, log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	defer n.close()
	serving, end := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- n.run(serving) }()
	defer func() { end(); <-served }()
	select {
	case <-n.ready:
	case err := <-served:
		served <- err
		return failf(exitRefused, "the demo's relay and executor ended: %v", err)
	case <-ctx.Done():
		return failf(exitRefused, "interrupted")
	case <-time.After(demoStart):
		return failf(exitRefused, "the demo's executor could not reach its relay on loopback within %v", demoStart)
	}
	stop() // signals are the command's from here on
	c, backend, err := n.home.connect(devName)
	if err != nil {
		return failf(exitRefused, "%v", err)
	}
	defer c.Close()
	env := client.Environment{Name: devName, Backend: backend}
	if len(argv) > 0 {
		l := newLink(devName, std, true)
		return runExec(std, env, l, wire.ExecParams{Argv: argv}, execFlags{quiet: true})
	}
	return tour(std, env, filepath.Join(dir, "workspace"))
}

func missing(r sandbox.Report) (list []sandbox.Layer) {
	for _, l := range r.Layers {
		if !l.OK && !l.Optional {
			list = append(list, l)
		}
	}
	return list
}

// tour shows what a newcomer should believe.
func tour(std stdio, env client.Environment, workspace string) error {
	fmt.Fprintf(std.out, `A relay and an executor run on loopback with throw-away keys. Each command goes from
a client through the relay, end-to-end encrypted, into a sandbox of its own.
`)
	steps := []struct {
		title string
		argv  []string
		tty   bool
		say   func(wire.ExitStatus) string
	}{
		{
			"A command in its sandbox: who it is, what it sees",
			[]string{"sh", "-c", "id -un; ls -d /proc/[0-9]* | wc -l; pwd; echo kept > note && cat note"},
			false,
			func(wire.ExitStatus) string {
				return "an identity of its own, only its own processes, and a workspace it may write: " + workspace
			},
		},
		{
			"A write outside the workspace",
			[]string{"sh", "-c", "echo x > /etc/postern-demo"},
			false,
			func(s wire.ExitStatus) string {
				return fmt.Sprintf("refused by the kernel: the view is read-only outside the workspace; %v", s)
			},
		},
		{
			"A command that fails",
			[]string{"sh", "-c", "echo working; exit 7"},
			false,
			func(s wire.ExitStatus) string { return s.String() + ", after the last byte of its output" },
		},
		{
			"A command on a terminal",
			[]string{"sh", "-c", "tty; stty size"},
			true,
			func(wire.ExitStatus) string { return "a terminal of the sandbox's own, 24 rows and 80 columns" },
		},
	}
	for i, s := range steps {
		fmt.Fprintf(std.out, "\n%d. %s\n   $ postern exec dev -- %s\n", i+1, s.title, quote(s.argv))
		cmd := env.Command(s.argv...)
		if s.tty {
			cmd.Params.TTY = &wire.WinSize{Rows: 24, Cols: 80}
		}
		out := &indented{w: std.out}
		cmd.Stdout, cmd.Stderr = out, out
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		status, err := startAndWait(ctx, cmd)
		cancel()
		out.end()
		if err != nil {
			return failf(startCode(err), "%v", err)
		}
		fmt.Fprintf(std.out, "   -> %s\n", s.say(status))
	}
	fmt.Fprintf(std.out, "\nNext: postern dev --state DIR gives you the same to play with; README.md has a real deployment.\n")
	return nil
}

func startAndWait(ctx context.Context, cmd *client.Cmd) (wire.ExitStatus, error) {
	if err := cmd.Start(ctx); err != nil {
		return wire.ExitStatus{}, err
	}
	return cmd.Wait(ctx)
}

// quote shows words as a shell would take them.
func quote(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = w; strings.ContainsAny(w, " ;$|&<>*[]'\"") {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// indented sets output off from the tour's own words.
type indented struct {
	w      interface{ Write([]byte) (int, error) }
	inLine bool
}

func (o *indented) Write(p []byte) (int, error) {
	var b []byte
	for _, c := range p {
		if c == '\r' {
			continue // a terminal's line ends, which the lines around these do not have
		}
		if !o.inLine {
			b = append(b, "   | "...)
			o.inLine = true
		}
		b = append(b, c)
		if c == '\n' {
			o.inLine = false
		}
	}
	if _, err := o.w.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (o *indented) end() {
	if o.inLine {
		o.Write([]byte("\n"))
	}
}
