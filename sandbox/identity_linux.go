package sandbox

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// defaultUID is who commands are when a root daemon names nobody: a number that
// the usual allocations leave free (60706 to 61183), so that it owns nothing.
const defaultUID = 60777

const (
	defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	defaultLang = "C.UTF-8"
	shell       = "/bin/sh"
)

// identity is who commands are, and the account files that say so in the view.
type identity struct {
	uid, gid      int
	passwd, group string
	name          string // in the view
	daemonName    string
	daemonHome    string // a directory that exists
	accountHome   string // what the account files say
	asRoot        bool   // the daemon is root and commands are somebody else
}

func newIdentity(o Options) (*identity, error) {
	id := &identity{uid: os.Geteuid(), gid: os.Getegid(), asRoot: os.Geteuid() == 0}
	switch {
	case o.UID < 0 || o.GID < 0:
		return nil, fmt.Errorf("sandbox uid and gid must not be negative")
	case id.asRoot:
		id.uid, id.gid = defaultUID, defaultUID
		if o.UID != 0 {
			id.uid, id.gid = o.UID, o.UID
		}
		if o.GID != 0 {
			id.gid = o.GID
		}
	case o.UID != 0 && o.UID != id.uid || o.GID != 0 && o.GID != id.gid:
		return nil, fmt.Errorf("commands cannot run as uid %d gid %d: only a root daemon can choose, this one is uid %d gid %d", o.UID, o.GID, id.uid, id.gid)
	}
	// A machine without these files still works; it just has no other names.
	passwd, _ := os.ReadFile("/etc/passwd")
	group, _ := os.ReadFile("/etc/group")
	self := findAccount(string(passwd), os.Geteuid())
	id.daemonName = field(self, 0)
	if id.daemonName == "" {
		id.daemonName = strconv.Itoa(os.Geteuid())
	}
	id.daemonHome = "/"
	for _, home := range []string{os.Getenv("HOME"), field(self, 5)} {
		if st, err := os.Stat(home); err == nil && st.IsDir() && strings.HasPrefix(home, "/") {
			id.daemonHome = home
			break
		}
	}
	id.accountHome = field(self, 5)
	id.name = accountName(string(passwd), id.uid)
	id.passwd = replaceAccount(string(passwd), id.uid, id.name,
		fmt.Sprintf("%s:x:%d:%d:sandboxed command:%s:%s", id.name, id.uid, id.gid, homeDir, shell))
	groupName := accountName(string(group), id.gid)
	id.group = replaceAccount(string(group), id.gid, groupName, fmt.Sprintf("%s:x:%d:", groupName, id.gid))
	return id, nil
}

// findAccount returns the line of a number in a passwd or group file.
func findAccount(file string, number int) string {
	for line := range strings.Lines(file) {
		if field(line, 2) == strconv.Itoa(number) {
			return strings.TrimRight(line, "\n")
		}
	}
	return ""
}

func field(line string, n int) string {
	f := strings.Split(strings.TrimRight(line, "\n"), ":")
	if n >= len(f) {
		return ""
	}
	return f[n]
}

// accountName is the name a number has, or a free one.
func accountName(file string, number int) string {
	if name := field(findAccount(file, number), 0); name != "" {
		return name
	}
	taken := map[string]bool{}
	for line := range strings.Lines(file) {
		taken[field(line, 0)] = true
	}
	name := "postern"
	for i := 1; taken[name]; i++ {
		name = "postern-" + strconv.Itoa(i)
	}
	return name
}

// replaceAccount drops every line with the number or the name and adds one.
func replaceAccount(file string, number int, name, line string) string {
	var b strings.Builder
	b.WriteString(line + "\n")
	for l := range strings.Lines(file) {
		if field(l, 0) != name && field(l, 2) != strconv.Itoa(number) {
			b.WriteString(strings.TrimRight(l, "\n") + "\n")
		}
	}
	return b.String()
}

// environment makes the command's environment: of duplicates the last one wins,
// and a few keys that programs rely on are added where they are absent.
func (id *identity) environment(env []string, full bool) []string {
	at := make(map[string]int, len(env)+6)
	out := make([]string, 0, len(env)+6)
	for _, kv := range env {
		key, _, _ := strings.Cut(kv, "=")
		if i, ok := at[key]; ok {
			out[i] = kv
			continue
		}
		at[key] = len(out)
		out = append(out, kv)
	}
	name, home := id.name, homeDir
	if full {
		name, home = id.daemonName, id.daemonHome
	}
	for _, d := range [][2]string{{"HOME", home}, {"USER", name}, {"LOGNAME", name}, {"SHELL", shell}, {"PATH", defaultPath}, {"LANG", defaultLang}} {
		if _, ok := at[d[0]]; !ok {
			out = append(out, d[0]+"="+d[1])
		}
	}
	return out
}
