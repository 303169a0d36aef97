package executor_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/wire"
)

func TestKeysOfOnePrincipalShareItsExecs(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		one, two, other := m.newGuest(), m.newGuest(), m.newGuest()
		m.admitLines("as=ci "+one.name(), "as=ci "+two.name(), other.name())
		p := command("echo", "shared")
		c := one.open(one.start(p))
		started := want[*wire.Started](t, c)
		if started.Owner != "ci" {
			t.Errorf("the owner is %q, want ci", started.Owner)
		}
		for want[*wire.Output](t, c); ; {
			if _, ok := next(t, c).(*wire.Exit); ok {
				break
			}
		}
		v := two.open(two.attach(p.ID, 0, true))
		want[*wire.Started](t, v)
		if out := want[*wire.Output](t, v); string(out.Data) != "shared\n" {
			t.Errorf("the other key reads %q", out.Data)
		}
		wantRefusal(t, other.open(other.attach(p.ID, 0, false)), wire.CodeNotFound)
		// A repeat by the other key is the same exec.
		want[*wire.Started](t, two.open(two.start(p)))
		if m.runner.Starts() != 1 {
			t.Errorf("%d starts, want 1", m.runner.Starts())
		}
	})
}

func TestRemovedKeyEndsWhatItStartedAlsoWhenOthersShareItsPrincipal(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		one, two := m.newGuest(), m.newGuest()
		m.admitLines("as=ci "+one.name(), "as=ci "+two.name())
		p, q := command("sleep", "100h"), command("sleep", "100h")
		p.Detach = true
		c := one.open(one.start(p))
		want[*wire.Started](t, c)
		if err := c.CloseWrite(); err != nil { // detached: no session holds it
			t.Fatal(err)
		}
		want[*wire.Started](t, two.open(two.start(q)))
		synctest.Wait()
		m.admitLines("as=ci " + two.name())
		m.Recheck()
		synctest.Wait()
		infos, err := m.backend.As(executor.Caller{Principal: "ci"}).List(t.Context())
		if err != nil || len(infos) != 2 {
			t.Fatalf("%d execs are listed, %v", len(infos), err)
		}
		for _, i := range infos {
			if removed := i.ID == p.ID; removed != (i.Exit != nil) || removed && i.Exit.Cause != wire.CauseRevoked {
				t.Errorf("%s: exit %v; the key of %s was removed", i.ID, i.Exit, p.ID)
			}
		}
	})
}

func TestOwnersMayLetAKeySeeOrControlEverything(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		worker, watcher, boss := m.newGuest(), m.newGuest(), m.newGuest()
		m.admitLines(worker.name(), "view=all "+watcher.name(), "control=all "+boss.name())
		p := command("sleep", "100h")
		want[*wire.Started](t, worker.open(worker.start(p)))
		list := func(g *guest) []wire.ListItem {
			return want[*wire.List](t, g.open(&wire.Control{Deadline: g.deadline(), Verb: wire.VerbList})).Execs
		}
		for _, g := range []*guest{watcher, boss} {
			if got := list(g); len(got) != 1 || got[0].Owner != worker.name() {
				t.Errorf("listed %+v, want the worker's exec", got)
			}
			want[*wire.Started](t, g.open(g.attach(p.ID, 0, false)))
		}
		wantRefusal(t, watcher.open(watcher.attach(p.ID, 0, true)), wire.CodePolicy)
		kill := func(g *guest, owner string) *wire.Control {
			return &wire.Control{Deadline: g.deadline(), Verb: wire.VerbSignal, ID: &p.ID, Owner: owner, Instance: &g.instance, Request: 1, Signal: "KILL"}
		}
		wantRefusal(t, watcher.open(kill(watcher, "")), wire.CodePolicy)
		// The same id of another principal: it must be said which is meant.
		want[*wire.Started](t, boss.open(boss.start(p)))
		wantRefusal(t, boss.open(kill(boss, "")), wire.CodeConflict)
		wantRefusal(t, boss.open(kill(boss, "nobody")), wire.CodeNotFound)
		want[*wire.Done](t, boss.open(kill(boss, worker.name())))
		synctest.Wait()
		for _, e := range list(boss) {
			if mine := e.Owner == boss.name(); mine != (e.Exit == nil) {
				t.Errorf("exec of %s: exit %v", e.Owner, e.Exit)
			}
		}
		// The line counts as it is now.
		m.admitLines(worker.name(), watcher.name())
		wantRefusal(t, watcher.open(watcher.attach(p.ID, 0, false)), wire.CodeNotFound)
	})
}

func TestStartOfAnotherStateEpochNeverRuns(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		for name, epoch := range map[string]wire.ID{"another": {1}, "none": {}} {
			s := g.start(command("echo", "x"))
			s.Epoch = epoch
			wantRefusal(t, g.open(s), wire.CodeUnknown)
			if m.runner.Starts() != 0 {
				t.Errorf("%s: it ran", name)
			}
		}
	})
}

func TestControlRequestActsOnceOnAnyChannel(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("stubborn", "1h")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		synctest.Wait() // it ignores signals by now
		for range 3 {
			want[*wire.Done](t, g.open(&wire.Control{
				Deadline: g.deadline(), Verb: wire.VerbSignal, ID: &p.ID, Instance: &g.instance, Request: 7, Signal: "HUP",
			}))
		}
		synctest.Wait()
		want[*wire.Done](t, g.open(&wire.Control{Deadline: g.deadline(), Verb: wire.VerbSignal, ID: &p.ID, Instance: &g.instance, Request: 8, Signal: "KILL"}))
		var got strings.Builder
		for {
			switch e := next(t, c).(type) {
			case *wire.Output:
				got.WriteString(string(e.Data))
				continue
			case *wire.Exit:
			}
			break
		}
		if got.String() != "ready\nHUP\n" {
			t.Errorf("the command got %q, want one HUP", got.String())
		}
	})
}

// name is the guest's principal while its line says nothing else.
func (g *guest) name() string { return g.key.Public().String() }

func TestStartIsRepeatedAlsoWhenItsPrincipalHasAnotherNameSince(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("sleep", "1h")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		c.Reset(wire.CodeUnknown)
		synctest.Wait()
		m.admitLines("as=ci " + g.name())
		if s := want[*wire.Started](t, g.open(g.start(p))); s.Owner != g.name() {
			t.Errorf("the owner is %q, want who started it", s.Owner)
		}
		if n := m.runner.Starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

// What a removed key holds is taken away at once: also an exec that another key started, and also on a
// channel whose session was dropped long ago.
func TestRemovedKeyLosesItsHandlesWhateverTheirSessionAndExec(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		owner, thief := m.newGuest(), m.newGuest()
		m.admitLines("as=ci "+owner.name(), "as=ci "+thief.name())
		p := command("stubborn", "100h")
		c := owner.open(owner.start(p))
		want[*wire.Started](t, c)
		c.Reset(wire.CodeUnknown)
		synctest.Wait()
		held := thief.open(thief.attach(p.ID, 0, true))
		want[*wire.Started](t, held)
		want[*wire.Output](t, held)
		thief.keepTalking(held)
		go func() { // a client reads, whatever comes
			for {
				if m, err := held.Recv(); err != nil {
					return
				} else if r, ok := m.(*wire.Refused); ok && r.Code != wire.CodeRevoked {
					t.Errorf("refused with %v", r.Code)
				}
			}
		}()
		<-time.After(wire.SessionAge + time.Minute)
		m.newGuest().first.Reset(wire.CodeCancelled) // somebody comes, and old sessions go
		m.admitLines("as=ci " + owner.name())
		m.Recheck()
		synctest.Wait()
		_ = held.Send(&wire.SignalMessage{Request: 1, Signal: "HUP"}) // the channel may be gone already
		<-time.After(10 * time.Second)
		b := m.backend.As(executor.Caller{Principal: "ci"})
		infos, err := b.List(t.Context())
		if err != nil || len(infos) != 1 || infos[0].Exit != nil || infos[0].Attached {
			t.Fatalf("listed %+v, %v; want it running, and nobody's", infos, err)
		}
		v, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := v.Read(t.Context(), wire.ReadRequest{}); err != nil || len(r.Chunks) != 1 {
			t.Errorf("the command has printed %d pieces, %v: the removed key's signal reached it", len(r.Chunks), err)
		}
		v.Close()
	})
}

func TestClientsTimeToKillBindsNobodyElse(t *testing.T) {
	inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		p := command("stubborn", "1000h")
		p.KillAfter, p.Grace = 500*time.Hour, time.Minute
		h := begin(t, b, p)
		viewer, err := b.Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for range 10 { // asking again does not put it off
			if err := h.Terminate(t.Context(), 5*time.Minute); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
		start := time.Now()
		if exit, err := viewer.Wait(t.Context()); err != nil || exit.Signal != "KILL" || time.Since(start) > 5*time.Minute {
			t.Errorf("ended %v, %v after %v", exit, err, time.Since(start))
		}
		q := p
		q.ID = wire.NewExecID()
		begin(t, b, q)
		start = time.Now()
		b.Close()
		if took := time.Since(start); took > wire.DefaultKillAfter {
			t.Errorf("Close took %v", took)
		}
	})
}
