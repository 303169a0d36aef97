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

// refusalOf is the refusal that c ends with.
func refusalOf(t *testing.T, g *guest, first wire.Message, code wire.Code) *wire.Refused {
	t.Helper()
	r := want[*wire.Refused](t, g.open(first))
	if r.Code != code {
		t.Errorf("refused with %v (%s), want %v", r.Code, r.Text, code)
	}
	return r
}

func TestNarrowedLineAppliesFromTheNextStart(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		m.runner.Handle("/bin/sleep", func(p *executortest.Process) int { p.Sleep(time.Hour); return 0 })
		p := command("sleep", "2h")
		running := g.open(g.start(p))
		if s := want[*wire.Started](t, running); s.Sandbox != wire.SandboxWorkspaceWrite {
			t.Errorf("it runs in %v", s.Sandbox)
		}
		g.keepTalking(running)
		m.admitLines(`sandbox<=read-only,command="/bin/sleep *" ` + g.name())
		m.Recheck()
		refusalOf(t, g, g.start(command("sh", "-c", "id")), wire.CodePolicy)
		if s := want[*wire.Started](t, g.open(g.start(command("sleep", "1h")))); s.Sandbox != wire.SandboxReadOnly {
			t.Errorf("it runs in %v", s.Sandbox)
		}
		specs := m.runner.Specs()
		if len(specs) != 2 || specs[1].Argv[0] != "/bin/sleep" {
			t.Errorf("what ran: %+v", specs)
		}
		// The first one goes on.
		if exit := want[*wire.Exit](t, running); !exit.Status.Success() {
			t.Errorf("the earlier command ended %+v", exit.Status)
		}
	})
}

func TestRepeatedStartOfANarrowedKeyGetsItsFirstAnswerAndRunsNothing(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		p := command("echo", "once")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		want[*wire.Output](t, c)
		want[*wire.Exit](t, c)
		m.admitLines(`sandbox<=read-only,command=/bin/true,max-time=1s ` + g.name())
		again := g.open(g.start(p))
		if s := want[*wire.Started](t, again); s.Sandbox != wire.SandboxWorkspaceWrite {
			t.Errorf("the first answer said %v, the second %v", wire.SandboxWorkspaceWrite, s.Sandbox)
		}
		if out := want[*wire.Output](t, again); string(out.Data) != "once\n" {
			t.Errorf("it reads %q", out.Data)
		}
		if n := m.runner.Starts(); n != 1 {
			t.Errorf("%d starts, want 1", n)
		}
	})
}

func TestKeyRunsNoMoreAtOnceThanItsLineAllows(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g, other := m.newGuest(), m.newGuest()
		m.admitLines("as=ci,max-execs=2 "+g.name(), "as=ci "+other.name())
		// What another key of its principal runs does not count.
		want[*wire.Started](t, other.open(other.start(command("sleep", "10h"))))
		first := g.open(g.start(command("sleep", "1m")))
		want[*wire.Started](t, first)
		g.keepTalking(first)
		second := command("sleep", "10h")
		want[*wire.Started](t, g.open(g.start(second)))
		late := command("echo", "x")
		r := refusalOf(t, g, g.start(late), wire.CodeBusy)
		if err := r.Err(); err.RetryAfter != time.Second || !strings.Contains(err.Text, "this key") {
			t.Errorf("refused with %+v", err)
		}
		want[*wire.Started](t, g.open(g.start(second))) // a repeat runs nothing more
		want[*wire.Started](t, other.open(other.start(command("sleep", "10h"))))
		want[*wire.Exit](t, first)
		// Who has read Exit can start the next one at once, and what was refused ran nowhere.
		want[*wire.Started](t, g.open(g.start(late)))
		if n := m.runner.Starts(); n != 5 {
			t.Errorf("%d starts, want 5", n)
		}
	})
}

func TestStartThatFailsDoesNotCountAgainstItsKey(t *testing.T) {
	gate, _ := newGated(true)
	gate.fail(wire.Errorf(wire.CodeNotFoundCmd, "no such command"))
	inBubble(t, executor.LocalConfig{Runner: gate}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
		narrow := b.As(callerOf(t, "max-execs=1"))
		for range 3 {
			_, err := narrow.Start(t.Context(), command("missing"))
			wantCode(t, "a missing command", err, wire.CodeNotFoundCmd)
		}
		gate.fail(nil)
		begin(t, narrow, command("sleep", "1h"))
		_, err := narrow.Start(t.Context(), command("sleep", "1h"))
		wantCode(t, "a second command", err, wire.CodeBusy)
	})
}

func TestTimeOfALineBoundsTheTimeThatIsAskedFor(t *testing.T) {
	for _, c := range []struct {
		name        string
		asked, want time.Duration
	}{{"none", 0, time.Minute}, {"more", time.Hour, time.Minute}, {"less", time.Second, time.Second}} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, executor.LocalConfig{}, func(t *testing.T, _ *executortest.Runner, b *executor.Local) {
				p := command("sleep", "10h")
				p.Timeout = c.asked
				if got := await(t, begin(t, b.As(callerOf(t, "max-time=1m")), p)); got.exit.Cause != wire.CauseTimedOut || got.after != c.want {
					t.Errorf("it ended %+v after %v, want by its time limit after %v", got.exit, got.after, c.want)
				}
			})
		})
	}
}

// A narrowed key that shares a principal would otherwise type into the shell of a wider one.
func TestNarrowedKeyTakesOverOnlyWhatItStarted(t *testing.T) {
	for _, narrow := range []string{"sandbox<=read-only", "sandbox<=full-access", "network<=none", "command=/bin/true", "max-time=5h"} {
		t.Run(narrow, func(t *testing.T) {
			onMachine(t, func(t *testing.T, m *machine) {
				wide, g := m.newGuest(), m.newGuest()
				m.admitLines("as=ci "+wide.name(), "as=ci,"+narrow+" "+g.name())
				m.runner.Handle("/bin/true", func(p *executortest.Process) int { p.Sleep(time.Hour); return 0 })
				theirs := command("cat")
				theirs.Stdin = true
				held := wide.open(wide.start(theirs))
				want[*wire.Started](t, held)
				refusalOf(t, g, g.attach(theirs.ID, 0, true), wire.CodePolicy)
				refusalOf(t, g, g.start(theirs), wire.CodePolicy)
				// It may still look, signal, and have what is its own.
				want[*wire.Started](t, g.open(g.attach(theirs.ID, 0, false)))
				mine := command("true")
				want[*wire.Started](t, g.open(g.start(mine)))
				want[*wire.Started](t, g.open(g.attach(mine.ID, 0, true)))
				want[*wire.Started](t, g.open(g.start(mine)))
				want[*wire.Started](t, wide.open(wide.attach(mine.ID, 0, true))) // the wider key is not narrowed
				if err := held.Send(&wire.Input{Data: []byte("x")}); err != nil {
					t.Fatal(err)
				}
				if out := want[*wire.Output](t, held); string(out.Data) != "x" {
					t.Errorf("the owner's input came back as %q: somebody took over", out.Data)
				}
				want[*wire.Done](t, g.open(&wire.Control{
					Deadline: g.deadline(), Verb: wire.VerbSignal, ID: &theirs.ID, Instance: &g.instance, Request: 1, Signal: "KILL",
				}))
				want[*wire.Exit](t, held)
				want[*wire.Done](t, g.open(&wire.Control{
					Deadline: g.deadline(), Verb: wire.VerbRemove, ID: &theirs.ID, Instance: &g.instance, Request: 2,
				}))
			})
		})
	}
}

func TestEmptyFileRunsNothingForAnybody(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		m.admitLines("# nobody", "")
		refusalOf(t, g, g.start(command("echo")), wire.CodeUnauthorized)
		if m.runner.Starts() != 0 {
			t.Error("something ran")
		}
	})
}

func TestLineThatIsNarrowedBetweenOpeningAndFirstMessageCounts(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		s := m.circuit(g.key.Public().Raw())
		c, err := g.session.OpenChannel(s) // the channel's header is on its way
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		m.admitLines("command=/bin/true " + g.name())
		if err := c.Send(g.start(command("echo"))); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, c, wire.CodePolicy)
	})
}
