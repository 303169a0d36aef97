package executor

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// Policy is what a command may do: a mode, the workspaces, what it sees, and its limits. The
// owner of the executor has one (the most), a request asks for one, and their meet is in force.
type Policy struct {
	Sandbox wire.SandboxMode // zero allows nothing
	Roots   []string         // absolute, clean
	View    wire.View        // zero is the narrowest
	Limits  wire.Limits
	Network Network
}

// Meet is what both allow. It is never wider than either: not in what may be written, seen
// or used. Roots is what of the one lies in the other.
func (p Policy) Meet(q Policy) Policy {
	m := Policy{Sandbox: min(p.Sandbox, q.Sandbox), View: wire.ViewMinimal, Limits: p.Limits.Meet(q.Limits), Network: p.Network.Meet(q.Network)}
	if p.View == wire.ViewFull && q.View == wire.ViewFull {
		m.View = wire.ViewFull
	}
	for _, a := range p.Roots {
		for _, b := range q.Roots {
			switch {
			case lies(a, b):
				m.addRoot(a)
			case lies(b, a):
				m.addRoot(b)
			}
		}
	}
	return m
}

// lies reports whether path is dir or lies below it where a command may write: not in what is
// protected there, which as a workspace of its own would lose its protection.
func lies(path, dir string) bool {
	return within(path, dir) && !sandbox.Protects(dir, path, sandbox.DefaultProtectedNames())
}

func (p *Policy) addRoot(root string) {
	if slices.Contains(p.Roots, root) {
		return
	}
	p.Roots = append(p.Roots, root)
}

// within reports whether path is dir or lies below it, by name. Links do not matter: the
// executor's own roots have none, and the sandbox follows none.
func within(path, dir string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// request is the policy that a client asks for. What it does not name it leaves to the owner.
func (p Policy) request(e wire.ExecParams) (Policy, error) {
	q := Policy{Sandbox: e.Sandbox, Roots: p.Roots, View: e.View, Limits: e.Limits}
	if q.View == 0 {
		q.View = wire.ViewFull
	}
	var err error
	if q.Network, err = p.requestNetwork(e); err != nil {
		return q, err
	}
	if len(e.Roots) == 0 {
		return q, nil
	}
	q.Roots = nil
	for _, root := range e.Roots {
		if !filepath.IsAbs(root) || filepath.Clean(root) != root {
			return q, wire.Errorf(wire.CodeBadRequest, "workspace %s: want an absolute path without . and ..", root)
		}
		allowed := false
		for _, own := range p.Roots {
			allowed = allowed || lies(root, own)
		}
		if !allowed {
			return q, wire.Errorf(wire.CodePolicy, "workspace %s is not one of this executor's, nor a folder in one that commands may write", root)
		}
		q.Roots = append(q.Roots, root)
	}
	return q, nil
}

// requestNetwork is the network that e asks for. Full access has the machine's whatever the owner says of those in
// a sandbox, and nothing else can be had with it.
func (p Policy) requestNetwork(e wire.ExecParams) (Network, error) {
	if e.Sandbox != wire.SandboxFullAccess {
		return p.Network.request(e.Network)
	}
	switch {
	case e.Network.Mode == wire.NetworkNone || e.Network.Mode == wire.NetworkAllowList:
		return Network{}, wire.Errorf(wire.CodeBadRequest, "full access has the machine's network: ask for a sandbox, or leave the network out")
	case p.Sandbox == wire.SandboxFullAccess:
		return Network{Mode: wire.NetworkHost}, nil
	}
	return p.Network.request(e.Network) // it is going to have a sandbox
}
