package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// stage is the host's side of one row: its own files, and what was seen.
type stage struct {
	launcher          *Launcher
	base, ws, outside string // what holds both, the root, the folder beside it
	bin               string
	env               []string
	out               outcome
	undo              []func()
	kept              map[string]string // what see compares with
}

// newStage lays out the files of a row. All of them have a mode that lets anybody
// write, so that nothing but the sandbox is in the way. The stage is never nil.
func newStage(l *Launcher, dir, id string) (*stage, error) {
	s := &stage{launcher: l, base: filepath.Join(dir, id), bin: filepath.Join(filepath.Dir(dir), "bin"), kept: map[string]string{}}
	s.ws, s.outside = filepath.Join(s.base, "ws"), filepath.Join(s.base, "out")
	s.undo = append(s.undo, func() { // without its layer an attempt may leave something
		for _, d := range []string{"/", "/etc", "/usr", "/tmp", "/dev/shm"} {
			os.RemoveAll(filepath.Join(d, s.mark(id)))
		}
	})
	for _, d := range []string{"", "ws", "ws/sub", "ws/.git", "ws/.git/hooks", "out", "home", "home/.ssh", "run"} {
		if err := s.mkdir(d); err != nil {
			return s, err
		}
	}
	for _, f := range [][2]string{{"ws/.git/config", "conf"}, {"out/file", "before"}, {"home/.ssh/id", "SECRET"}, {"daemon.key", "SECRET"}} {
		if err := s.write(f[0], f[1], 0o666); err != nil {
			return s, err
		}
	}
	s.env = []string{
		"LC_ALL=C", "B=" + s.base, "WS=" + s.ws, "OUT=" + s.outside, "P=" + probeName, "PATH=" + s.bin + ":" + defaultPath,
		"SETUID=" + filepath.Join(filepath.Dir(dir), "setuid"), "ID=" + s.mark(id), "DAEMON=" + strconv.Itoa(os.Getpid()),
	}
	return s, nil
}

// mark is a name that nothing else on the machine has.
func (s *stage) mark(id string) string {
	return fmt.Sprintf("sandbox-check-%d-%s", os.Getpid(), id)
}

func (s *stage) path(name string) string { return filepath.Join(s.base, name) }

func (s *stage) mkdir(name string) error {
	return errors.Join(os.Mkdir(s.path(name), 0o777), os.Chmod(s.path(name), 0o777))
}

func (s *stage) write(name, text string, mode os.FileMode) error {
	return errors.Join(os.WriteFile(s.path(name), []byte(text), mode), os.Chmod(s.path(name), mode))
}

// set gives the script a variable.
func (s *stage) set(key, value string) { s.env = append(s.env, key+"="+value) }

// Ways to look afterwards.

// same wants a file of the stage to hold what it held.
func same(name, text string) func(*stage) error {
	return func(s *stage) error {
		if b, err := os.ReadFile(s.path(name)); err != nil || string(b) != text {
			return fmt.Errorf("on the host %s is %q, %v", name, b, err)
		}
		return nil
	}
}

var outsideUntouched = same("out/file", "before")

// missing wants names not to exist: those of the stage, or absolute ones. ID stands for
// the mark.
func missing(names ...string) func(*stage) error {
	return func(s *stage) error {
		var all error
		for _, name := range names {
			path := strings.ReplaceAll(name, "ID", s.mark(filepath.Base(s.base)))
			if !filepath.IsAbs(path) {
				path = s.path(path)
			}
			if _, err := os.Lstat(path); err == nil {
				all = errors.Join(all, fmt.Errorf("%s exists on the host", name))
			}
		}
		return all
	}
}

// every wants all of them.
func every(all ...func(*stage) error) func(*stage) error {
	return func(s *stage) (err error) {
		for _, see := range all {
			err = errors.Join(err, see(s))
		}
		return err
	}
}

// Ways to prepare.

// fifo makes a FIFO that anybody may write to, with a reader.
func fifo(names ...string) func(*stage) error {
	return func(s *stage) error {
		for _, name := range names {
			if err := errors.Join(unix.Mkfifo(s.path(name), 0o666), os.Chmod(s.path(name), 0o666)); err != nil {
				return err
			}
			fd, err := unix.Open(s.path(name), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
			if err != nil {
				return err
			}
			s.undo = append(s.undo, func() { unix.Close(fd) })
		}
		return nil
	}
}

// listen makes a service of the host and gives its address to the script.
func listen(network, address string) func(*stage) error {
	return func(s *stage) error {
		address := address
		if strings.HasPrefix(address, "@") {
			address = "@" + s.mark(filepath.Base(s.base))
		} else if network == "unix" {
			address = s.path(address)
		}
		host, err := net.Listen(network, address)
		if err != nil {
			return err
		}
		s.undo = append(s.undo, func() { host.Close() })
		s.set("ADDR", host.Addr().String())
		if filepath.IsAbs(address) {
			return os.Chmod(address, 0o777)
		}
		return nil
	}
}

// victim starts a process of the host that belongs to the command's user, so that
// only the sandbox keeps them apart.
func victim(s *stage) error {
	cmd := exec.Command("/bin/sleep", "100")
	if id := s.launcher.id; id.asRoot {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(id.uid), Gid: uint32(id.gid)}}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	s.kept["victim"] = strconv.Itoa(cmd.Process.Pid)
	s.set("HOSTPID", s.kept["victim"])
	return nil
}

func victimLives(s *stage) error {
	pid, err := strconv.Atoi(s.kept["victim"])
	if err != nil {
		return err
	}
	if st, ok := procStat(pid); !ok || st.state == 'Z' {
		return errors.New("the process of the host is dead")
	}
	return nil
}

// keep remembers a file of the host; unchanged compares.
func keep(path string) func(*stage) error {
	return func(s *stage) error {
		b, err := os.ReadFile(path)
		s.kept[path] = string(b)
		return err
	}
}

func unchanged(path string) func(*stage) error {
	return func(s *stage) error {
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, []byte(s.kept[path])) {
			return fmt.Errorf("%s of the host is another one now, %v", path, err)
		}
		return nil
	}
}

// strays wants that processes were left, and were killed: the pipe that all of them
// held has ended already.
func strays(least int) func(*stage) error {
	return func(s *stage) error {
		if s.out.Strays < least {
			return fmt.Errorf("%d processes were left and killed, not %d", s.out.Strays, least)
		}
		return nil
	}
}
