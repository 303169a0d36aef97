package executor

import (
	"slices"
	"strings"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// rights are what the caller's line in authorized_clients allows. Without a key the caller is this process itself, which no
// line binds, if it says for whom it acts.
func (c Caller) rights() keys.Rights {
	if c.Key == "" && c.Principal != "" {
		return keys.AllRights()
	}
	return c.Rights
}

// mayHold reports whether the caller may control, and so type into, what this key started.
func (c Caller) mayHold(starter string) bool {
	return c.rights().TakeOver || c.Key != "" && c.Key == starter
}

var widestModes = map[keys.SandboxCeiling]wire.SandboxMode{
	keys.SandboxReadOnly:       wire.SandboxReadOnly,
	keys.SandboxWorkspaceWrite: wire.SandboxWorkspaceWrite,
	keys.SandboxFullAccess:     wire.SandboxFullAccess,
}

// ceiling is what the executor's own policy and the line both allow. It starts nothing when the line's rights are zero. Whoever
// may not have the network of the machine, or see all of it, cannot go without a sandbox.
func (c *LocalConfig) ceiling(r keys.Rights) Policy {
	most := Policy{Sandbox: min(c.Max, widestModes[r.Sandbox]), Roots: c.Workspaces, View: c.View, Limits: c.Limits, Network: c.Network.within(r.Network)}
	if !r.FullView {
		most.View = wire.ViewMinimal
	}
	if r.Network != keys.NetworkHost || !r.FullView {
		most.Sandbox = min(most.Sandbox, wire.SandboxWorkspaceWrite)
	}
	return most
}

// maxGrace is how long a command of the line may be without a controller: no longer than it may run.
func (c *LocalConfig) maxGrace(r keys.Rights) time.Duration {
	if r.MaxTime > 0 {
		return min(c.MaxGrace, r.MaxTime)
	}
	return c.MaxGrace
}

// gate is the request as the line lets it run, or a refusal. Of what it cannot narrow it drops nothing: a client that did
// not get what it asked for must know.
func (c *LocalConfig) gate(r keys.Rights, p wire.ExecParams) (wire.ExecParams, error) {
	most := c.ceiling(r)
	if most.Sandbox == 0 {
		return p, wire.Errorf(wire.CodePolicy, "this caller may start nothing here")
	}
	if p.TTY != nil && !r.Terminal {
		return p, wire.Errorf(wire.CodePolicy, "this key may have no terminal: start the command without one")
	}
	if !r.Environment || !r.AnyCommand {
		if err := checkEnvironment(p); err != nil {
			return p, err
		}
	}
	if !r.AnyCommand {
		var err error
		if p, err = force(r.Commands, most, p); err != nil {
			return p, err
		}
	}
	if r.MaxTime > 0 && (p.Timeout <= 0 || p.Timeout > r.MaxTime) {
		p.Timeout = r.MaxTime
	}
	return p, nil
}

// checkEnvironment refuses variables of the client's choice, but those for its language and terminal: LD_PRELOAD, PATH and
// their like decide what really runs. The umask decides who else may write what it leaves behind.
func checkEnvironment(p wire.ExecParams) error {
	if p.Inherit != wire.InheritCore || len(p.Exclude) > 0 {
		return wire.Errorf(wire.CodePolicy, "this key may not choose which variables its commands inherit: ask for the core ones, and exclude none")
	}
	if p.Umask != 0 && p.Umask&defaultUmask != defaultUmask {
		return wire.Errorf(wire.CodePolicy, "this key may not choose a umask that lets others write: leave it out")
	}
	for _, kv := range p.Env {
		name, _, _ := strings.Cut(kv, "=")
		if !slices.Contains([]string{"TERM", "LANG", "LANGUAGE", "TZ"}, name) && !strings.HasPrefix(name, "LC_") {
			return wire.Errorf(wire.CodePolicy, "this key may not set the variable %.64q: only TERM, LANG, LANGUAGE, LC_* and TZ", name)
		}
	}
	return nil
}
