package executor

import (
	"net/netip"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/sandbox/egress"
	"github.com/postern-relay/postern/wire"
)

// prepare applies the executor's own policy, and the line's, to a request that has passed the gate. A
// client can only ask for less.
func (c *LocalConfig) prepare(r keys.Rights, p wire.ExecParams) (Spec, time.Duration, error) {
	most := c.ceiling(r)
	wanted, err := most.request(p)
	if err != nil {
		return Spec{}, 0, err
	}
	if p.Dir != "" && !filepath.IsAbs(p.Dir) {
		return Spec{}, 0, wire.Errorf(wire.CodeBadRequest, "working directory %s: want an absolute path", p.Dir)
	}
	s := Spec{
		Policy: most.Meet(wanted),
		Argv:   p.Argv, Arg0: p.Arg0, Dir: p.Dir, Umask: p.Umask,
		Stdin: p.Stdin, TTY: p.TTY, Merge: p.Merge,
	}
	if s.Policy.Sandbox == wire.SandboxFullAccess {
		s.Policy.Network = Network{Mode: wire.NetworkHost}
	}
	s.Env = c.environ(p, s.Policy.Network)
	if s.Dir == "" && len(s.Policy.Roots) > 0 {
		s.Dir = s.Policy.Roots[0]
	}
	if s.Umask == 0 {
		s.Umask = defaultUmask
	}
	grace := p.Grace
	switch {
	case grace == 0:
		grace = wire.DefaultGrace
	case grace < 0:
		grace = 0
	}
	if p.Detach {
		grace = 0 // it needs nobody
	}
	return s, min(grace, c.maxGrace(r)), nil
}

// defaultUmask is that of a command whose client asked for none.
const defaultUmask = 0o022

// limits is what a welcome tells a client with these rights.
func (c *LocalConfig) limits(r keys.Rights) wire.SessionLimits {
	return wire.SessionLimits{
		Message: wire.MaxMessage, Window: wire.OutputWindow,
		GraceMillis: uint64(c.maxGrace(r) / time.Millisecond), Sandbox: uint8(c.ceiling(r).Sandbox),
	}
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environ is what the command gets: inherited as asked, less what is excluded, then where the proxy is, then what
// the request sets. Of two values the last wins. HOME, USER and their like are the
// runner's, since they depend on who the command runs as.
func (c *LocalConfig) environ(p wire.ExecParams, n Network) []string {
	e := newEnvironment()
	if p.Inherit != wire.InheritNone {
		for _, kv := range c.Environ {
			if inherits(kv, p.Inherit, p.Exclude) {
				e.set(kv)
			}
		}
		if _, ok := e.at["PATH"]; !ok {
			e.set("PATH=" + defaultPath)
		}
	}
	if n.Mode == wire.NetworkAllowList {
		for _, kv := range egress.Environ(netip.MustParseAddrPort(sandbox.ProxyAddress)) {
			e.set(kv)
		}
	}
	for _, kv := range p.Env {
		e.set(kv)
	}
	return e.list
}

// inherits decides on one of the executor's own variables. What concerns postern itself, the
// supervisor that started it or the executor's user never gets through.
func inherits(kv string, how wire.EnvInherit, exclude []string) bool {
	name, _, ok := strings.Cut(kv, "=")
	if !ok || name == "" {
		return false
	}
	for _, pattern := range exclude {
		if ok, err := path.Match(pattern, name); ok || err != nil {
			return false
		}
	}
	core := name == "PATH" || name == "LANG" || name == "TZ" || strings.HasPrefix(name, "LC_")
	if how != wire.InheritAll {
		return core
	}
	for _, prefix := range []string{"POSTERN_", "NOTIFY_", "LISTEN_", "WATCHDOG_", "CREDENTIALS_DIRECTORY", "INVOCATION_ID", "JOURNAL_STREAM", "SSH_AUTH_SOCK", "DBUS_", "XDG_RUNTIME_DIR"} {
		if strings.HasPrefix(name, prefix) {
			return false
		}
	}
	switch name {
	case "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TMPDIR", "MAIL", "TERM":
		return false
	}
	return true
}

// environment keeps the place of a variable's first setting and the value of its last.
type environment struct {
	list []string
	at   map[string]int
}

func newEnvironment() *environment { return &environment{at: make(map[string]int)} }

func (e *environment) set(kv string) {
	name, _, _ := strings.Cut(kv, "=")
	if i, ok := e.at[name]; ok {
		e.list[i] = kv
		return
	}
	e.at[name] = len(e.list)
	e.list = append(e.list, kv)
}
