package wiretest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// startRows are about what a start is given and tells.
var startRows = []backendRow{
	{"StartGivesOutputAndCode", func(r *row) {
		res := r.run(sh("echo out; echo err >&2; exit 3"))
		r.equal("stdout", res.stdout, "out\n")
		r.equal("stderr", res.stderr, "err\n")
		r.equal("exit", res.exit, wire.ExitStatus{Code: 3, Cause: exited})
	}},
	{"InfoTellsWhatIsInForce", func(r *row) {
		id := wire.NewExecID()
		p := r.start(wire.ExecParams{ID: id, Argv: []string{"true"}, Sandbox: wire.SandboxReadOnly, Grace: 7 * time.Second})
		r.equal("ID", p.ID(), id)
		info := p.Info()
		r.equal("Info.ID", info.ID, id)
		r.equal("Info.Sandbox", info.Sandbox, wire.SandboxReadOnly)
		r.equal("Info.Grace", info.Grace, 7*time.Second)
		if age := time.Since(info.Started); age < -time.Minute || age > time.Minute {
			r.Errorf("Info.Started is %v ago", age)
		}
		r.wait(p)
	}},
	{"ModeIsNarrowedToTheMaximum", func(r *row) {
		p := r.start(wire.ExecParams{Argv: []string{"true"}, Sandbox: wire.SandboxFullAccess})
		r.equal("Info.Sandbox", p.Info().Sandbox, wire.SandboxWorkspaceWrite)
		r.wait(p)
	}},
	{"PolicyInForceIsTold", func(r *row) {
		limits := wire.Limits{OpenFiles: 100, FileSize: 4096, Output: 1 << 20}
		p := sh("ulimit -n; mkdir -p in/side; cd in/side && echo x > file && echo wrote; echo y > ../file")
		p.Limits, p.Dir = limits, r.o.Workspace
		prepare := r.start(wire.ExecParams{Argv: []string{"mkdir", "-p", "in/side"}, Dir: r.o.Workspace})
		r.wait(prepare)
		p.Roots = []string{r.o.Workspace + "/in/side"}
		proc := r.start(p)
		info := proc.Info()
		r.equal("Info.Limits", info.Limits, limits)
		r.equal("Info.View", info.View, wire.ViewFull)
		r.equal("Info.Roots", strings.Join(info.Roots, " "), r.o.Workspace+"/in/side")
		r.equal("stdout", r.drain(proc).stdout, "100\nwrote\n")
		// Beside the workspace there may be a private folder, but not the machine's.
		left := r.run(wire.ExecParams{Argv: []string{"ls", "in", "in/side"}, Dir: r.o.Workspace})
		r.equal("files on the machine", left.stdout, "in:\nside\n\nin/side:\nfile\n")
		p.Roots, p.ID = []string{"/usr"}, wire.NewExecID()
		_, err := r.backend.Start(r.ctx, p)
		r.code("Start with a foreign workspace", err, wire.CodePolicy)
		p.Roots, p.ID = []string{r.o.Workspace + "/.git"}, wire.NewExecID()
		_, err = r.backend.Start(r.ctx, p)
		r.code("Start with a protected folder as workspace", err, wire.CodePolicy)
	}},
	{"OutputLimitEndsTheCommand", func(r *row) {
		p := wire.ExecParams{Argv: []string{"yes"}, Limits: wire.Limits{Output: 100_001}}
		res := r.run(p)
		r.equal("bytes of output", len(res.stdout), 100_001)
		r.equal("cause", res.exit.Cause, wire.CauseLimit)
		r.equal("limits hit", res.exit.Hit, wire.LimitOutput)
	}},
	{"LimitsHitAreNamed", func(r *row) {
		p := sh("while :; do :; done")
		p.Limits.CPUMillis = 1000
		exit := r.run(p).exit
		r.equal("signal", exit.Signal, wire.Signal("XCPU"))
		r.equal("limits hit", exit.Hit, wire.LimitCPUTime)
		p = sh("exec head -c 100000 /dev/zero > /tmp/file")
		p.Limits.FileSize = 4096
		exit = r.run(p).exit
		r.equal("signal", exit.Signal, wire.Signal("XFSZ"))
		r.equal("limits hit", exit.Hit, wire.LimitFileSize)
	}},
	{"WordsAndEnvironmentAreExactBytes", func(r *row) {
		words := []string{"a b", "", "$HOME", "\"'\\", "new\nline", "\xff\xfe", "世界", "--", "-n"}
		p := wire.ExecParams{
			Argv: append([]string{"sh", "-c", `printf '%s|' "$@"; printf %s "$X"`, "sh"}, words...),
			Env:  []string{"X=first", "X= last\xff=\n"},
		}
		r.equal("words", r.run(p).stdout, strings.Join(words, "|")+"| last\xff=\n")
	}},
	{"Arg0IsWhatTheProcessSees", func(r *row) {
		r.equal("argv[0]", r.run(wire.ExecParams{Argv: []string{"sh", "-c", "cat /proc/$$/cmdline"}, Arg0: "other"}).stdout[:6], "other\x00")
	}},
	{"EnvironmentIsInheritedAsAsked", func(r *row) {
		p := sh("env")
		p.Inherit = wire.InheritNone
		p.Env = []string{"PATH=/usr/bin:/bin", "ONLY=this"}
		out := r.run(p).stdout
		if !strings.Contains(out, "ONLY=this\n") || strings.Contains(out, "SUITE_MARK") {
			r.Errorf("inherit none: environment %q", out)
		}
		p.Inherit, p.Exclude = wire.InheritAll, []string{"SUITE_EX*"}
		out = r.run(p).stdout
		if !strings.Contains(out, "SUITE_MARK=kept\n") || strings.Contains(out, "SUITE_EXCLUDED") || strings.Contains(out, "POSTERN_SECRET") {
			r.Errorf("inherit all but SUITE_EX*: environment %q", out)
		}
	}},
	{"DirAndUmaskAreUsed", func(r *row) {
		p := sh("pwd; umask")
		p.Dir, p.Umask = "/usr", 0o077
		r.equal("stdout", r.run(p).stdout, "/usr\n0077\n")
		p.Dir, p.Umask = "", 0
		r.equal("stdout", r.run(p).stdout, r.o.Workspace+"\n0022\n")
	}},
	{"MissingCommandIs127", func(r *row) {
		_, err := r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{"no-such-command"}})
		r.code("by name", err, wire.CodeNotFoundCmd)
		_, err = r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{"/no/such/command"}})
		r.code("by path", err, wire.CodeNotFoundCmd)
	}},
	{"NotExecutableIs126", func(r *row) {
		for _, path := range []string{"/etc/passwd", "/etc"} {
			_, err := r.backend.Start(r.ctx, wire.ExecParams{Argv: []string{path}})
			r.code(path, err, wire.CodeNotExec)
		}
	}},
	{"FailedStartIsNotRetriedAsAnotherRun", func(r *row) {
		p := wire.ExecParams{ID: wire.NewExecID(), Argv: []string{"no-such-command"}}
		for range 2 {
			_, err := r.backend.Start(r.ctx, p)
			r.code("Start", err, wire.CodeNotFoundCmd)
		}
	}},
	{"BadRequestsAreRefused", func(r *row) {
		for what, p := range map[string]wire.ExecParams{
			"no words":         {},
			"an empty word":    {Argv: []string{""}},
			"a NUL":            {Argv: []string{"a\x00b"}},
			"a nameless env":   {Argv: []string{"true"}, Env: []string{"=x"}},
			"a missing folder": {Argv: []string{"true"}, Dir: "/no/such/folder"},
			"an unknown mode":  {Argv: []string{"true"}, Sandbox: 9},
		} {
			_, err := r.backend.Start(r.ctx, p)
			r.code(what, err, wire.CodeBadRequest)
		}
	}},
	{"StartEndsWithItsContext", func(r *row) {
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		if p, err := r.backend.Start(ctx, wire.ExecParams{Argv: []string{"true"}}); err == nil {
			p.Close()
			r.Error("Start with an ended context succeeded")
		}
	}},
	{"ManyAtOnceStayApart", func(r *row) {
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				p, err := r.backend.Start(r.ctx, sh(fmt.Sprintf("echo %d; exit %d", i, i)))
				if err != nil {
					r.Errorf("Start %d: %v", i, err)
					return
				}
				defer p.Close()
				var out strings.Builder
				for e, err := range p.Events(r.ctx, 0) {
					switch {
					case err != nil:
						r.Errorf("exec %d: %v", i, err)
						return
					case e.Chunk != nil:
						out.WriteString(string(e.Chunk.Data))
					case e.Exit != nil && (e.Exit.Code != i || out.String() != fmt.Sprintf("%d\n", i)):
						r.Errorf("exec %d printed %q and ended with %d", i, out.String(), e.Exit.Code)
					}
				}
			})
		}
		all.Wait()
	}},
}
