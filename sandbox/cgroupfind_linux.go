package sandbox

import (
	"errors"
	"fmt"
	"os"
	slashpath "path"
	"strings"
)

// findCgroups looks at the hierarchies of this process and tries them.
func findCgroups() *cgroups {
	c := &cgroups{parents: map[string]string{}, prefix: fmt.Sprintf("postern-%d-", os.Getpid())}
	own, err := ownGroups()
	if err != nil {
		c.why = err.Error()
		return c
	}
	mounts, err := groupMounts()
	if err != nil {
		c.why = err.Error()
		return c
	}
	if dir := groupDir(mounts, own, ""); dir != "" {
		if err := c.use2(dir); err == nil {
			return c
		} else {
			c.why = "cgroup v2: " + err.Error()
		}
	}
	for _, name := range []string{memoryController, pidsController, cpuController} {
		dir := groupDir(mounts, own, name)
		if dir == "" {
			continue
		}
		if err := tryGroup(dir, c.prefix+"try"); err != nil {
			c.why = "cgroup v1: " + err.Error()
			continue
		}
		c.parents[name] = dir
		c.version = 1
	}
	if c.version == 0 && c.why == "" {
		c.why = "no cgroup hierarchy with memory, pids and cpu is mounted"
	}
	return c
}

// tryGroup makes a group and removes it.
func tryGroup(parent, name string) error {
	dir := slashpath.Join(parent, name)
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return os.Remove(dir)
}

// ownGroups is /proc/self/cgroup: the group of this process by controller, "" for
// version 2.
func ownGroups() (map[string]string, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	own := map[string]string{}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[0] == "0" && f[1] == "" {
			own[""] = f[2]
			continue
		}
		for c := range strings.SplitSeq(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own, nil
}

// groupMount is one mounted hierarchy.
type groupMount struct {
	root, dir   string
	controllers []string // "" for version 2
}

func groupMounts() ([]groupMount, error) {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var mounts []groupMount
	for line := range strings.Lines(string(b)) {
		before, after, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 6 || len(g) < 3 {
			continue
		}
		switch g[0] {
		case "cgroup2":
			mounts = append(mounts, groupMount{f[3], f[4], []string{""}})
		case "cgroup":
			mounts = append(mounts, groupMount{f[3], f[4], strings.Split(g[2], ",")})
		}
	}
	return mounts, nil
}

// groupDir is the directory of this process's group, "" where it cannot be seen.
func groupDir(mounts []groupMount, own map[string]string, controller string) string {
	path, ok := own[controller]
	if !ok {
		return ""
	}
	for _, m := range mounts {
		for _, c := range m.controllers {
			if c != controller || !within(path, m.root) {
				continue
			}
			return slashpath.Join(m.dir, strings.TrimPrefix(slashpath.Clean(path), slashpath.Clean(m.root)))
		}
	}
	return ""
}
