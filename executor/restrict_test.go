package executor_test

import (
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestRestrictedLineHoldsAtTheGateButForWhatItSaysOtherwise(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) {
		g := m.newGuest()
		onTerminal := func() wire.ExecParams {
			p := command("true")
			p.TTY = &wire.WinSize{Rows: 24, Cols: 80}
			return p
		}
		m.admitLines("restrict " + g.name())
		refusalOf(t, g, g.start(onTerminal()), wire.CodePolicy)
		p := command("true")
		p.Env = []string{"LD_PRELOAD=x"}
		refusalOf(t, g, g.start(p), wire.CodePolicy)
		if s := want[*wire.Started](t, g.open(g.start(command("true")))); s.Sandbox != wire.SandboxReadOnly || s.View != wire.ViewMinimal {
			t.Errorf("it runs in %v and sees %v", s.Sandbox, s.View)
		}
		m.admitLines("sandbox<=workspace-write,restrict,pty " + g.name())
		s := want[*wire.Started](t, g.open(g.start(onTerminal())))
		if s.Sandbox != wire.SandboxWorkspaceWrite || s.View != wire.ViewMinimal || !s.TTY {
			t.Errorf("it runs in %v, sees %v, terminal %t", s.Sandbox, s.View, s.TTY)
		}
	})
}
