package executor

import (
	"math/rand/v2"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// allows reports whether p lets a command write path.
func (p Policy) allows(path string) bool {
	for _, root := range p.Roots {
		if lies(path, root) {
			return true
		}
	}
	return false
}

func TestMeetIsNeverWiderThanEitherPolicy(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	paths := []string{"/", "/w", "/w/a", "/w/a/b", "/w2", "/x", "/x/y", "/x/y/z", "/wa", "/w/.git", "/w/.git/hooks", "/w/a/.git", "/.git"}
	random := func() Policy {
		p := Policy{Sandbox: wire.SandboxMode(r.IntN(4)), View: wire.View(r.IntN(3)), Limits: wire.Limits{Memory: r.Uint64N(3), Output: r.Uint64N(3)}, Network: randomNetwork(t, r)}
		for range r.IntN(4) {
			p.addRoot(paths[r.IntN(len(paths))])
		}
		return p
	}
	for range 20000 {
		a, b := random(), random()
		m := a.Meet(b)
		if m.Sandbox > a.Sandbox || m.Sandbox > b.Sandbox {
			t.Fatalf("mode of %+v and %+v is %v", a, b, m.Sandbox)
		}
		if m.View == wire.ViewFull && (a.View != wire.ViewFull || b.View != wire.ViewFull) {
			t.Fatalf("view of %+v and %+v is full", a, b)
		}
		if m.Limits != a.Limits.Meet(b.Limits) {
			t.Fatalf("limits of %+v and %+v are %+v", a, b, m.Limits)
		}
		for _, host := range networkHosts {
			if m.Network.reaches(host) && !(a.Network.reaches(host) && b.Network.reaches(host)) {
				t.Fatalf("%+v and %+v meet in %+v, which reaches %s", a.Network, b.Network, m.Network, host)
			}
		}
		for _, p := range paths {
			if m.allows(p) != (a.allows(p) && b.allows(p)) {
				t.Fatalf("%+v and %+v meet in %+v: %s may be written: %t", a, b, m, p, m.allows(p))
			}
		}
	}
}

func TestZeroPolicyAllowsNothing(t *testing.T) {
	all := Policy{Sandbox: wire.SandboxFullAccess, Roots: []string{"/"}, View: wire.ViewFull}
	m := Policy{}.Meet(all)
	if m.Sandbox != 0 || len(m.Roots) != 0 || m.View != wire.ViewMinimal {
		t.Errorf("nothing and everything meet in %+v", m)
	}
}

func TestClientsWorkspacesAreOutOfTheExecutors(t *testing.T) {
	own := Policy{Sandbox: wire.SandboxWorkspaceWrite, Roots: []string{"/srv/build", "/srv/cache"}, View: wire.ViewFull}
	for _, c := range []struct {
		roots []string
		code  wire.Code
	}{
		{nil, 0},
		{[]string{"/srv/build"}, 0},
		{[]string{"/srv/build/a", "/srv/cache"}, 0},
		{[]string{"/srv"}, wire.CodePolicy},
		{[]string{"/srv/buildx"}, wire.CodePolicy},
		{[]string{"/srv/build/../cache"}, wire.CodeBadRequest},
		{[]string{"srv/build"}, wire.CodeBadRequest},
		{[]string{"/"}, wire.CodePolicy},
		{[]string{"/srv/build/.git"}, wire.CodePolicy},
		{[]string{"/srv/build", "/srv/build/.git/hooks"}, wire.CodePolicy},
		{[]string{"/srv/build/a/.git"}, 0}, // protected only directly below a workspace
	} {
		q, err := own.request(wire.ExecParams{Roots: c.roots, Sandbox: wire.SandboxFullAccess})
		if (err == nil) != (c.code == 0) || err != nil && wire.CodeOf(err) != c.code {
			t.Errorf("roots %q: %v, want code %v", c.roots, err, c.code)
			continue
		}
		if err == nil && own.Meet(q).Sandbox != wire.SandboxWorkspaceWrite {
			t.Errorf("roots %q: mode %v", c.roots, own.Meet(q).Sandbox)
		}
	}
}
