package wiretest

import (
	"strings"
	"time"

	"github.com/postern-relay/postern/wire"
)

// controlRows are about signals, terminals and ends.
var controlRows = []backendRow{
	{"SignalReachesTheProcessGroup", func(r *row) {
		proc := r.start(sh("trap 'echo got; exit 9' TERM; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Signal(r.ctx, "TERM"); err != nil {
			r.Fatal(err)
		}
		r.equal("exit", r.wait(proc), wire.ExitStatus{Code: 9, Cause: exited})
	}},
	{"DeathBySignalIsNotAnExitCode", func(r *row) {
		for _, s := range []wire.Signal{"KILL", "USR2", "TERM"} {
			proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
			if err := proc.Signal(r.ctx, s); err != nil {
				r.Fatal(err)
			}
			status := r.wait(proc)
			r.equal("signal", status.Signal, s)
			r.equal("cause", status.Cause, wire.CauseSignalled)
			r.equal("shell code", status.ShellCode(), 128+s.Number())
		}
		proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
		r.code("Signal NOPE", proc.Signal(r.ctx, "NOPE"), wire.CodeBadRequest)
	}},
	{"SignalAfterTheEndIsRefused", func(r *row) {
		proc := r.start(wire.ExecParams{Argv: []string{"true"}})
		r.wait(proc)
		r.code("Signal", proc.Signal(r.ctx, "TERM"), wire.CodeEnded)
		r.code("Terminate", proc.Terminate(r.ctx, 0), wire.CodeEnded)
	}},
	{"TerminalHasSizeAndResizes", func(r *row) {
		p := sh("stty size; read x; stty size; test -t 0 && test -t 1 && test -t 2 && echo all")
		p.TTY, p.Stdin = &wire.WinSize{Rows: 31, Cols: 97}, true
		proc := r.start(p)
		r.equal("Info.TTY", proc.Info().TTY, true)
		r.await(proc, "31 97\r\n")
		if err := proc.Resize(r.ctx, wire.WinSize{Rows: 40, Cols: 120}); err != nil {
			r.Fatal(err)
		}
		if err := proc.Write(r.ctx, 0, []byte("\n")); err != nil {
			r.Fatal(err)
		}
		r.await(proc, "40 120\r\nall\r\n")
		r.equal("exit code", r.wait(proc).Code, 0)
	}},
	{"ResizeWithoutATerminalIsRefused", func(r *row) {
		proc := r.start(wire.ExecParams{Argv: []string{"sleep", "60"}})
		r.code("Resize", proc.Resize(r.ctx, wire.WinSize{Rows: 1, Cols: 1}), wire.CodeBadRequest)
	}},
	{"TerminalOutputIsOneStreamAndEndOfInputIsEOF", func(r *row) {
		p := sh("echo err >&2; cat; echo end")
		p.TTY, p.Stdin = &wire.WinSize{Rows: 24, Cols: 80}, true
		proc := r.start(p)
		r.await(proc, "err")
		r.feed(proc, []byte("line\n"))
		res := r.drain(proc)
		if res.stdout != "" || res.stderr != "" || !strings.HasSuffix(res.terminal, "line\r\nend\r\n") {
			r.Errorf("stdout %q, stderr %q, terminal %q", res.stdout, res.stderr, res.terminal)
		}
		r.equal("exit code", res.exit.Code, 0)
	}},
	{"TerminateKillsAfterTheGrace", func(r *row) {
		proc := r.start(sh("trap '' TERM HUP INT; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Terminate(r.ctx, 50*time.Millisecond); err != nil {
			r.Fatal(err)
		}
		status := r.wait(proc)
		r.equal("signal", status.Signal, wire.Signal("KILL"))
		r.equal("cause", status.Cause, wire.CauseTerminated)
	}},
	{"TerminateLetsTheCommandCleanUp", func(r *row) {
		proc := r.start(sh("trap 'echo cleaned; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
		r.await(proc, "up")
		if err := proc.Terminate(r.ctx, 30*time.Second); err != nil {
			r.Fatal(err)
		}
		res := r.drain(proc)
		if !strings.Contains(res.stdout, "cleaned") {
			r.Errorf("output %q", res.stdout)
		}
		r.equal("exit", res.exit, wire.ExitStatus{Code: 3, Cause: wire.CauseTerminated})
	}},
	{"TimeoutEndsTheCommand", func(r *row) {
		p := sh("trap '' TERM; echo up; while :; do sleep 0.05; done")
		p.Timeout, p.KillAfter = 300*time.Millisecond, 50*time.Millisecond
		status := r.run(p).exit
		r.equal("cause", status.Cause, wire.CauseTimedOut)
		r.equal("shell code", status.ShellCode(), 124)
	}},
	{"TimeoutIsNotEarly", func(r *row) {
		p := sh("echo quick")
		p.Timeout = time.Minute
		r.equal("exit", r.run(p).exit, wire.ExitStatus{Cause: exited})
	}},
	{"StraysEndWithTheCommand", func(r *row) {
		res := r.run(sh("setsid sh -c 'sleep 60 & sleep 60' & sleep 0.2; echo main"))
		r.equal("stdout", res.stdout, "main\n")
		if res.exit.Strays == 0 {
			r.Errorf("exit %+v tells of no strays", res.exit)
		}
		r.equal("pipes held", res.exit.PipesHeld, false)
	}},
}
