package sandbox

import (
	"errors"
	"fmt"
	"os"
	slashpath "path"
	"slices"
	"strconv"
	"strings"
)

// leafName is the group that the daemon itself moves to on version 2.
const leafName = "postern-daemon"

// use2 makes groups of version 2 possible below dir, the daemon's own group, or says
// why not. An ordinary user needs a group that was delegated to him (systemd: Delegate=yes).
func (c *cgroups) use2(dir string) error {
	if slashpath.Base(dir) == leafName {
		dir = slashpath.Dir(dir) // this process, or the one it follows, has moved already
	}
	b, err := os.ReadFile(slashpath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	var have []string
	for _, name := range []string{memoryController, pidsController, cpuController} {
		if slices.Contains(strings.Fields(string(b)), name) {
			have = append(have, name)
		}
	}
	if !slices.Contains(have, memoryController) || !slices.Contains(have, pidsController) {
		return errors.New("the memory and pids controllers are not there")
	}
	if err := tryGroup(dir, c.prefix+"try"); err != nil {
		return err
	}
	if err := handOn(dir, have); err != nil {
		if err := makeRoom(dir); err != nil {
			return err
		}
		if err := handOn(dir, have); err != nil {
			return fmt.Errorf("its controllers cannot be handed on: %w", err)
		}
	}
	c.version = 2
	for _, name := range have {
		c.parents[name] = dir
	}
	return nil
}

func handOn(dir string, controllers []string) error {
	return os.WriteFile(slashpath.Join(dir, "cgroup.subtree_control"), []byte("+"+strings.Join(controllers, " +")), 0)
}

// makeRoom moves the daemon and its own processes into a leaf. Somebody else's
// processes are left alone, and then there is no room.
func makeRoom(dir string) error {
	leaf := slashpath.Join(dir, leafName)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	b, err := os.ReadFile(slashpath.Join(dir, "cgroup.procs"))
	if err != nil {
		return err
	}
	for f := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(f)
		if err != nil {
			return err
		}
		if st, ok := procStat(pid); pid != os.Getpid() && (!ok || st.parent != os.Getpid()) {
			return errors.New("other processes are in the daemon's group")
		}
	}
	for f := range strings.FieldsSeq(string(b)) {
		pid, _ := strconv.ParseUint(f, 10, 64)
		if err := writeGroup(leaf, "cgroup.procs", pid); err != nil {
			return err
		}
	}
	return nil
}
