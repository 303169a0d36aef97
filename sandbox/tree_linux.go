package sandbox

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

func itoa(n int) string { return strconv.Itoa(n) }

// reapDead collects children that are dead already; false means none is left.
func reapDead() bool {
	for {
		pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return false
		case pid == 0:
			return true
		}
	}
}

// stat is what the init reads from /proc/PID/stat.
type stat struct {
	state      byte
	parent     int
	foreground int // group of the controlling terminal, or -1
}

func procStat(pid int) (stat, bool) {
	b, err := os.ReadFile("/proc/" + itoa(pid) + "/stat")
	if err != nil {
		return stat{}, false
	}
	// the name in parentheses may hold anything, parentheses included
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return stat{}, false
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 6 {
		return stat{}, false
	}
	parent, err1 := strconv.Atoi(string(f[1]))
	fg, err2 := strconv.Atoi(string(f[5]))
	return stat{f[0][0], parent, fg}, err1 == nil && err2 == nil
}

func foreground(pid int) int {
	st, ok := procStat(pid)
	if !ok {
		return -1
	}
	return st.foreground
}

func allPIDs() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1)
	var pids []int
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants lists everything below this process.
func descendants() []int {
	children := map[int][]int{}
	for _, pid := range allPIDs() {
		if st, ok := procStat(pid); ok {
			children[st.parent] = append(children[st.parent], pid)
		}
	}
	var all []int
	queue := []int{os.Getpid()}
	for len(queue) > 0 {
		next := children[queue[0]]
		queue = append(queue[1:], next...)
		all = append(all, next...)
	}
	return all
}
