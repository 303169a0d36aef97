package wiretest

import (
	"errors"
	"strings"
	"time"

	"github.com/postern-relay/postern/wire"
)

// handleRows are about ids, handles and their loss.
var handleRows = []backendRow{
	{"StartOfTheSameIDIsTheSameExec", func(r *row) {
		file := wire.NewExecID().String()
		p := sh("echo run >> " + file + "; read x; echo $x")
		p.ID, p.Stdin, p.Dir = wire.NewExecID(), true, r.o.Workspace
		first := r.start(p)
		second := r.start(p)
		if _, err := first.Read(r.ctx, wire.ReadRequest{Wait: time.Minute}); wire.CodeOf(err) != wire.CodeSuperseded {
			r.Errorf("the older handle reads: %v, want superseded", err)
		}
		r.feed(second, []byte("once\n"))
		r.equal("stdout", r.drain(second).stdout, "once\n")
		again := r.start(p) // the result is kept
		r.equal("stdout, later", r.drain(again).stdout, "once\n")
		p.Argv = []string{"echo", "other"}
		_, err := r.backend.Start(r.ctx, p)
		r.code("Start of another request under the id", err, wire.CodeConflict)
		r.equal("runs", r.run(wire.ExecParams{Argv: []string{"cat", file}, Dir: r.o.Workspace}).stdout, "run\n")
	}},
	{"CloseDetachesAndAttachComesBack", func(r *row) {
		p := sh("echo before; read x; echo after; exit 8")
		p.Stdin = true
		proc := r.start(p)
		after := r.await(proc, "before")
		if err := proc.Close(); err != nil {
			r.Fatal(err)
		}
		if _, err := proc.Read(r.ctx, wire.ReadRequest{}); !errors.Is(err, wire.ErrClosed) {
			r.Errorf("Read after Close: %v", err)
		}
		back, err := r.backend.Attach(r.ctx, p.ID, wire.AttachOptions{})
		r.code("Attach to the zero id", err, wire.CodeNotFound)
		if err == nil {
			back.Close()
		}
		back, err = r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{After: after, Control: true})
		if err != nil {
			r.Fatal(err)
		}
		defer back.Close()
		r.feed(back, []byte("x\n"))
		resp := r.all(back, after)
		var out strings.Builder
		for _, c := range resp.Chunks {
			out.WriteString(string(c.Data))
		}
		r.equal("output after attaching", out.String(), "after\n")
		r.equal("exit code", resp.Exit.Code, 8)
	}},
	{"SignalAndTerminateNeedNoHandle", func(r *row) {
		proc := r.start(sh("trap 'echo caught' USR1; echo ready; while :; do sleep 0.05; done"))
		r.await(proc, "ready")
		ref := wire.ExecRef{ID: proc.ID()}
		if err := r.backend.Signal(r.ctx, ref, "USR1"); err != nil {
			r.Fatal(err)
		}
		r.await(proc, "caught") // its controller kept it
		r.code("an unknown signal", r.backend.Signal(r.ctx, ref, "NONE"), wire.CodeBadRequest)
		if err := r.backend.Terminate(r.ctx, ref, time.Minute); err != nil {
			r.Fatal(err)
		}
		status := r.wait(proc)
		r.equal("cause", status.Cause, wire.CauseTerminated)
		r.code("Signal after the end", r.backend.Signal(r.ctx, ref, "TERM"), wire.CodeEnded)
		r.code("Terminate after the end", r.backend.Terminate(r.ctx, ref, 0), wire.CodeEnded)
		unknown := wire.ExecRef{ID: wire.NewExecID()}
		r.code("Signal of nothing", r.backend.Signal(r.ctx, unknown, "TERM"), wire.CodeNotFound)
		r.code("Terminate of nothing", r.backend.Terminate(r.ctx, unknown, 0), wire.CodeNotFound)
		r.code("Remove of nothing", r.backend.Remove(r.ctx, unknown), wire.CodeNotFound)
		r.code("Signal of the zero id", r.backend.Signal(r.ctx, wire.ExecRef{}, "TERM"), wire.CodeNotFound)
		r.code("Signal of another owner's", r.backend.Signal(r.ctx, wire.ExecRef{ID: proc.ID(), Owner: "nobody"}, "TERM"), wire.CodeNotFound)
	}},
	{"RemoveForgetsTheResultAndKeepsTheID", func(r *row) {
		p := sh("echo out; read x")
		p.ID, p.Stdin = wire.NewExecID(), true
		proc := r.start(p)
		ref := wire.ExecRef{ID: p.ID}
		r.await(proc, "out")
		r.code("Remove while it runs", r.backend.Remove(r.ctx, ref), wire.CodeBusy)
		r.feed(proc, []byte("x\n"))
		r.wait(proc)
		if err := r.backend.Remove(r.ctx, ref); err != nil {
			r.Fatal(err)
		}
		_, err := r.backend.Attach(r.ctx, p.ID, wire.AttachOptions{})
		r.code("Attach", err, wire.CodeUnknown)
		_, err = r.backend.Start(r.ctx, p)
		r.code("the same Start", err, wire.CodeUnknown)
		infos, err := r.backend.List(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		for _, i := range infos {
			if i.ID == p.ID {
				r.Error("it is still listed")
			}
		}
	}},
	{"ListDescribesTheExec", func(r *row) {
		p := sh("echo out; read x; exit 3")
		p.Stdin, p.Detach = true, true
		proc := r.start(p)
		r.await(proc, "out")
		find := func() wire.ExecInfo {
			infos, err := r.backend.List(r.ctx)
			if err != nil {
				r.Fatal(err)
			}
			for _, i := range infos {
				if i.ID == proc.ID() {
					return i
				}
			}
			r.Fatal("it is not listed")
			return wire.ExecInfo{}
		}
		i := find()
		if !i.Attached || !i.Detach || i.Exit != nil || !i.Ended.IsZero() || i.Last != 1 || i.Owner == "" || !strings.HasPrefix(i.Command, "sh -c ") {
			r.Errorf("while it runs: %+v", i)
		}
		r.feed(proc, []byte("x\n"))
		r.wait(proc)
		if i = find(); i.Exit == nil || i.Exit.Code != 3 || i.Ended.Before(i.Started) || i.Last != 2 {
			r.Errorf("after the end: %+v", i)
		}
	}},
	{"ViewersReadAndCannotControl", func(r *row) {
		p := sh("echo shown; read x; exit 1")
		p.Stdin = true
		proc := r.start(p)
		r.await(proc, "shown")
		viewer, err := r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{})
		if err != nil {
			r.Fatal(err)
		}
		defer viewer.Close()
		r.await(viewer, "shown")
		r.code("Write", viewer.Write(r.ctx, 0, []byte("x")), wire.CodePolicy)
		r.code("CloseStdin", viewer.CloseStdin(r.ctx), wire.CodePolicy)
		r.code("Signal", viewer.Signal(r.ctx, "TERM"), wire.CodePolicy)
		r.code("Terminate", viewer.Terminate(r.ctx, 0), wire.CodePolicy)
		r.code("Resize", viewer.Resize(r.ctx, wire.WinSize{Rows: 1, Cols: 1}), wire.CodePolicy)
		r.feed(proc, []byte("\n"))
		r.equal("the viewer's exit code", r.wait(viewer).Code, 1)
		r.equal("the controller's exit code", r.wait(proc).Code, 1)
	}},
	{"DetachGraceEndsTheCommand", func(r *row) {
		p := sh("trap 'exit 4' TERM; echo up; while :; do sleep 0.05; done")
		p.Grace, p.KillAfter = 100*time.Millisecond, time.Minute // for a trap on a machine that is held up
		proc := r.start(p)
		r.await(proc, "up")
		proc.Close()
		viewer, err := r.backend.Attach(r.ctx, proc.ID(), wire.AttachOptions{})
		if err != nil {
			r.Fatal(err)
		}
		defer viewer.Close()
		r.equal("exit", r.wait(viewer), wire.ExitStatus{Code: 4, Cause: wire.CauseTerminated})
	}},
	{"ListShowsOwnExecs", func(r *row) {
		p := sh("read x")
		p.Stdin = true
		proc := r.start(p)
		ended := r.start(sh("exit 2"))
		r.wait(ended)
		infos, err := r.backend.List(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		found := make(map[wire.ExecID]wire.ExecInfo)
		for _, i := range infos {
			found[i.ID] = i
		}
		if i, ok := found[proc.ID()]; !ok || i.Exit != nil || !i.Attached {
			r.Errorf("the running exec is listed as %+v (%v)", i, ok)
		}
		if i, ok := found[ended.ID()]; !ok || i.Exit == nil || i.Exit.Code != 2 {
			r.Errorf("the ended exec is listed as %+v (%v)", i, ok)
		}
	}},
}
