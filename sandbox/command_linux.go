package sandbox

import (
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// selfProgram is the program of whoever looks at it: of the init, and so of the daemon.
const selfProgram = "/proc/self/exe"

// lookPath finds a program as execvp does, in the PATH of the command's own
// environment and from its working directory, which is already the current one.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	var found error = unix.ENOENT
	if list := lookEnv(env, "PATH"); name != "" && list != "" {
		for dir := range strings.SplitSeq(list, ":") {
			if dir == "" {
				dir = "."
			}
			path := dir + "/" + name
			var st unix.Stat_t
			// A folder that cannot be searched is passed over, as shells do: a daemon's PATH names
			// folders that its commands may not enter, and "not found" is then the truth.
			if unix.Stat(path, &st) != nil {
				continue
			}
			if st.Mode&unix.S_IFMT != unix.S_IFREG || unix.Access(path, unix.X_OK) != nil {
				found = unix.EACCES
				continue
			}
			return path, nil
		}
	}
	return "", &CommandError{Op: "lookup", Path: name, Err: found}
}

// lookEnv returns the value of the last entry of a key.
func lookEnv(env []string, key string) string {
	for i := len(env) - 1; i >= 0; i-- {
		if k, v, ok := strings.Cut(env[i], "="); ok && k == key {
			return v
		}
	}
	return ""
}

// giveTerminal opens a terminal in the sandbox's own devpts, where its name will
// mean the same to the command, hands the master out and returns the slave.
func giveTerminal(c *run) (int, error) {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer unix.Close(master)
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return -1, err
	}
	n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err != nil {
		return -1, err
	}
	if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &unix.Winsize{Row: c.rows, Col: c.cols}); err != nil {
		return -1, err
	}
	slave, err := unix.Open("/dev/pts/"+itoa(n), unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	if err := sendMessage(controlFD, 0, msgTTY, nil, master); err != nil {
		unix.Close(slave)
		return -1, err
	}
	return slave, nil
}

func encodeExit(status unix.WaitStatus, usage *unix.Rusage, strays int, noRoutes uint64) []byte {
	var w writer
	code, sig := status.ExitStatus(), 0
	if status.Signaled() {
		code, sig = -1, int(status.Signal())
	}
	w.signed(int64(code))
	w.num(uint64(sig))
	w.num(uint64(strays))
	w.num(uint64(usage.Utime.Nano()))
	w.num(uint64(usage.Stime.Nano()))
	w.num(uint64(usage.Maxrss))
	w.num(noRoutes)
	return w.b
}

func decodeExit(b []byte) (Result, error) {
	r := reader{b: b}
	res := Result{ExitCode: int(r.signed()), Signal: syscall.Signal(r.num()), Strays: int(r.num())}
	res.UserTime, res.SystemTime = time.Duration(r.num()), time.Duration(r.num())
	res.MaxRSS = int64(r.num()) << 10
	res.NoRoutes = r.num()
	return res, r.done()
}
