package executor_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// TestNoHistoryRunsACommandTwiceOrLosesOutputSilently drives the exec table by random
// histories of starts, repeats, attaches, acknowledgements, signals, removals, crashes and restarts, and compares it
// with a model that is a few maps.
func TestNoHistoryRunsACommandTwiceOrLosesOutputSilently(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rapid.Check(timeless{t}, func(rt *rapid.T) {
			w := &history{T: rt, root: t.TempDir(), runs: make(map[string]int), known: make(map[identity]*fate)}
			defer w.end()
			w.open("0")
			rt.Repeat(map[string]func(*rapid.T){
				"start":     w.start,
				"repeat":    w.repeat,
				"conflict":  w.conflict,
				"attach":    w.attach,
				"detach":    w.detach,
				"read":      w.read,
				"terminate": w.terminate,
				"signal":    w.signal,
				"remove":    w.remove,
				"wait":      w.wait,
				"crash":     w.crash,
				"restart":   w.restart,
				"":          w.check,
			})
		})
	})
}

// timeless hides the deadline, which a bubble does not allow to ask for.
type timeless struct{ rapid.TB }

type identity struct {
	principal string
	id        wire.ExecID
}

// fate is what the model knows of one exec.
type fate struct {
	params  wire.ExecParams
	size    int // bytes it prints
	code    int // how it exits; negative: it waits for a signal
	running bool
	exit    wire.ExitStatus // once it does not
	spilled bool            // its output is in files while it runs
	output  int             // bytes that must be there: all, or none when a crash took them
	removed bool
	failed  bool
}

type open struct {
	who   identity
	proc  wire.ExecProcess
	after uint64
	bytes int
	lead  bool // it was given control
}

type history struct {
	*rapid.T
	root    string
	dir     string
	lives   int
	runner  *executortest.Runner
	backend *executor.Local
	handles []*open
	known   map[identity]*fate
	order   []identity

	mu   sync.Mutex
	runs map[string]int
}

func (w *history) open(name string) {
	w.dir = filepath.Join(w.root, name)
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		w.Fatal(err)
	}
	w.runner = new(executortest.Runner)
	w.runner.Handle("job", func(p *executortest.Process) int {
		w.mu.Lock()
		w.runs[p.Argv[1]]++
		w.mu.Unlock()
		size, _ := strconv.Atoi(p.Argv[2])
		code, _ := strconv.Atoi(p.Argv[3])
		if _, err := p.Stdout.Write(executortest.Pattern(size)); err != nil {
			return 99
		}
		if code < 0 {
			p.Sleep(1000 * time.Hour)
		}
		return code
	})
	var err error
	w.backend, err = executor.NewLocal(executor.LocalConfig{Runner: w.runner, State: w.dir, Keep: 12 * time.Hour})
	if err != nil {
		w.Fatal(err)
	}
}

func (w *history) as(principal string) *executor.Local {
	return w.backend.As(executor.Caller{Principal: principal, Key: principal, Rights: keys.AllRights()})
}

func (w *history) start(t *rapid.T) {
	f := &fate{size: rapid.IntRange(0, 3000).Draw(t, "size"), code: rapid.IntRange(-1, 3).Draw(t, "code")}
	who := identity{rapid.SampledFrom([]string{"a", "b"}).Draw(t, "principal"), wire.NewExecID()}
	if len(w.order) > 0 && rapid.IntRange(0, 4).Draw(t, "reuse") == 0 { // another principal's id is free
		other := rapid.SampledFrom(w.order).Draw(t, "of")
		who = identity{map[string]string{"a": "b", "b": "a"}[other.principal], other.id}
	}
	if w.known[who] != nil {
		return
	}
	f.params = wire.ExecParams{
		ID: who.id, Argv: []string{"job", fmt.Sprint(who), strconv.Itoa(f.size), strconv.Itoa(f.code)},
		Detach: rapid.Bool().Draw(t, "detach"), Grace: 1000 * time.Hour,
	}
	f.spilled = f.params.Detach
	if f.failed = rapid.IntRange(0, 9).Draw(t, "fails") == 0; f.failed {
		f.params.Argv[0] = "no-such-command"
	}
	w.known[who] = f
	w.order = append(w.order, who)
	proc, err := w.as(who.principal).Start(w.Context(), f.params)
	if f.failed {
		w.want("start of nothing", err, wire.CodeNotFoundCmd)
		return
	}
	if err != nil {
		w.Fatal(err)
	}
	f.running, f.output = true, f.size
	w.handles = append(w.handles, &open{who: who, proc: proc, lead: true})
	w.settle()
}

// settle lets everything happen that needs no more time, and takes over which commands have ended.
func (w *history) settle() {
	synctest.Wait()
	for _, f := range w.known {
		if f.running && f.code >= 0 {
			f.running, f.exit = false, wire.ExitStatus{Code: f.code, Cause: wire.CauseExited}
		}
	}
}

func (w *history) want(what string, err error, code wire.Code) {
	if wire.CodeOf(err) != code {
		w.Fatalf("%s: %v, want code %v", what, err, code)
	}
}

// some is an exec that was started, nil if there is none.
func (w *history) some(t *rapid.T) (identity, *fate) {
	if len(w.order) == 0 {
		t.Skip("nothing was started")
	}
	who := rapid.SampledFrom(w.order).Draw(t, "exec")
	return who, w.known[who]
}

func (w *history) repeat(t *rapid.T) {
	who, f := w.some(t)
	proc, err := w.as(who.principal).Start(w.Context(), f.params)
	if w.refused("repeated start", f, err) {
		return
	}
	w.handles = append(w.handles, &open{who: who, proc: proc, lead: true})
}

// refused reports whether the exec cannot be had any more, and checks the reason.
func (w *history) refused(what string, f *fate, err error) bool {
	switch {
	case f.removed:
		w.want(what+" of a removed exec", err, wire.CodeUnknown)
	case f.failed:
		w.want(what+" of a failed start", err, wire.CodeNotFoundCmd)
	case err != nil:
		w.Fatalf("%s: %v", what, err)
	default:
		return false
	}
	return true
}

func (w *history) conflict(t *rapid.T) {
	who, f := w.some(t)
	p := f.params
	p.Umask = 0o77
	_, err := w.as(who.principal).Start(w.Context(), p)
	w.want("another request", err, wire.CodeConflict)
}

func (w *history) attach(t *rapid.T) {
	who, f := w.some(t)
	control := rapid.Bool().Draw(t, "control")
	proc, err := w.as(who.principal).Attach(w.Context(), who.id, wire.AttachOptions{Control: control})
	if w.refused("attach", f, err) {
		return
	}
	w.handles = append(w.handles, &open{who: who, proc: proc, lead: control})
}

func (w *history) pick(t *rapid.T) *open {
	if len(w.handles) == 0 {
		t.Skip("no handle")
	}
	return rapid.SampledFrom(w.handles).Draw(t, "handle")
}

func (w *history) detach(t *rapid.T) {
	h := w.pick(t)
	h.proc.Close()
	w.drop(func(o *open) bool { return o == h })
}

func (w *history) drop(which func(*open) bool) {
	kept := w.handles[:0]
	for _, h := range w.handles {
		if !which(h) {
			kept = append(kept, h)
		}
	}
	w.handles = kept
}

// read checks one step of a cursor: numbers rise by one or over a gap, bytes are those of
// the command, exit comes last.
func (w *history) read(t *rapid.T) {
	h := w.pick(t)
	w.step(h, rapid.IntRange(0, 2000).Draw(t, "max"))
}

func (w *history) step(h *open, most int) (done bool) {
	f := w.known[h.who]
	r, err := h.proc.Read(w.Context(), wire.ReadRequest{After: h.after, MaxBytes: most})
	if err != nil {
		if c := wire.CodeOf(err); c != wire.CodeSuperseded && !(f.removed && c == wire.CodeUnknown) {
			w.Fatalf("read: %v", err)
		}
		return true
	}
	if r.Gap != nil {
		if r.Gap.From != h.after+1 || f.running {
			w.Fatalf("gap %+v after %d", *r.Gap, h.after)
		}
		h.after, h.bytes = r.Gap.To, h.bytes+int(r.Gap.Bytes)
	}
	for _, c := range r.Chunks {
		if c.Seq != h.after+1 {
			w.Fatalf("chunk %d after %d", c.Seq, h.after)
		}
		if !bytes.Equal(c.Data, executortest.PatternAt(h.bytes, len(c.Data))) {
			w.Fatalf("chunk %d has other bytes than the command printed at %d", c.Seq, h.bytes)
		}
		h.after, h.bytes = c.Seq, h.bytes+len(c.Data)
	}
	if r.Exit == nil {
		return len(r.Chunks) == 0 && r.Gap == nil
	}
	h.after = r.Next
	switch {
	case f.running:
		w.Fatalf("exit %v of a running command", *r.Exit)
	case h.bytes != f.output:
		w.Fatalf("exit after %d bytes, want %d", h.bytes, f.output)
	case !r.Exit.Equal(f.exit):
		w.Fatalf("exit %+v, want %+v", *r.Exit, f.exit)
	}
	return true
}

func (w *history) terminate(t *rapid.T) {
	who, f := w.some(t)
	w.act("terminate", who, f, w.as(who.principal).Terminate(w.Context(), wire.ExecRef{ID: who.id}, time.Second),
		wire.ExitStatus{Signal: "TERM", Cause: wire.CauseTerminated})
}

func (w *history) signal(t *rapid.T) {
	who, f := w.some(t)
	w.act("signal", who, f, w.as(who.principal).Signal(w.Context(), wire.ExecRef{ID: who.id}, "KILL"),
		wire.ExitStatus{Signal: "KILL", Cause: wire.CauseSignalled})
}

func (w *history) act(what string, _ identity, f *fate, err error, exit wire.ExitStatus) {
	switch {
	case f.removed || f.failed:
		w.refused(what, f, err)
	case !f.running:
		w.want(what+" after the end", err, wire.CodeEnded)
	case err != nil:
		w.Fatalf("%s: %v", what, err)
	default:
		f.running, f.exit = false, exit
		w.settle()
	}
}

func (w *history) remove(t *rapid.T) {
	who, f := w.some(t)
	err := w.as(who.principal).Remove(w.Context(), wire.ExecRef{ID: who.id})
	switch {
	case f.running:
		w.want("removal of a running exec", err, wire.CodeBusy)
	case err != nil:
		w.Fatalf("remove: %v", err)
	default:
		f.removed, f.failed = true, false
	}
}

func (w *history) wait(t *rapid.T) {
	time.Sleep(time.Duration(rapid.IntRange(1, 5000).Draw(t, "ms")) * time.Millisecond)
	w.settle()
}

// crash is a kill -9: the folder stays as it is at this moment, and the commands are gone.
func (w *history) crash(*rapid.T) {
	synctest.Wait()
	w.lives++
	next := strconv.Itoa(w.lives)
	if err := os.CopyFS(filepath.Join(w.root, next), os.DirFS(w.dir)); err != nil {
		w.Fatal(err)
	}
	w.leave()
	for _, f := range w.known {
		if f.running {
			f.running, f.exit = false, wire.ExitStatus{Cause: wire.CauseExecutorLost}
			if !f.spilled {
				f.output = 0
			}
		}
	}
	w.open(next)
}

// restart ends the commands and records how.
func (w *history) restart(*rapid.T) {
	for _, f := range w.known {
		if f.running {
			f.running, f.exit = false, wire.ExitStatus{Signal: "TERM", Cause: wire.CauseTerminated}
		}
	}
	w.leave()
	w.open(filepath.Base(w.dir))
}

func (w *history) leave() {
	if err := w.backend.Close(); err != nil {
		w.Fatal(err)
	}
	for _, h := range w.handles {
		h.proc.Close()
	}
	w.handles = nil
	if n := w.runner.Running(); n != 0 {
		w.Fatalf("%d commands outlive the executor", n)
	}
}

// check holds after every step.
func (w *history) check(*rapid.T) {
	w.mu.Lock()
	for token, n := range w.runs {
		if n > 1 {
			w.Errorf("%s ran %d times", token, n)
		}
	}
	w.mu.Unlock()
	for _, principal := range []string{"a", "b"} {
		infos, err := w.as(principal).List(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		want := 0
		for who, f := range w.known {
			if who.principal == principal && !f.removed && !f.failed {
				want++
			}
		}
		if len(infos) != want {
			w.Fatalf("%d execs are listed for %s, want %d", len(infos), principal, want)
		}
		for _, i := range infos {
			f := w.known[identity{principal, i.ID}]
			if f.running != (i.Exit == nil) || i.Exit != nil && !i.Exit.Equal(f.exit) {
				w.Fatalf("listed as %+v, want %+v", i.Exit, f)
			}
		}
	}
}

// end reads every handle to its end, and leaves nothing running and nothing in files.
func (w *history) end() {
	for _, h := range w.handles {
		for range 100_000 {
			if w.step(h, 1<<20) {
				break
			}
		}
		h.proc.Close()
	}
	w.handles = nil
	w.restart(nil)
	for who, f := range w.known {
		if err := w.as(who.principal).Remove(w.Context(), wire.ExecRef{ID: who.id}); err != nil && !f.failed {
			w.Errorf("remove: %v", err)
		}
	}
	if n := w.backend.StoreUsed(); n != 0 {
		w.Errorf("%d bytes of files are left when every result is removed", n)
	}
	w.leave()
}
