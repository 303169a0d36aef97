package sandbox

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// checkProbes are the probes that are more than one call.
var checkProbes = map[string]func(args []string){
	"call": func(args []string) { say(raw(numberOf(args[0]))) }, // by name, with zeros

	"ids": func([]string) { fmt.Println(os.Getuid(), os.Geteuid()) },

	"flock": func(args []string) {
		fd, err := unix.Open(args[0], unix.O_RDONLY, 0)
		if err == nil {
			err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		}
		say(err)
	},

	"descriptors": func([]string) {
		found := "none"
		for fd := 3; fd < 1024; fd++ {
			if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
				found = strconv.Itoa(fd)
			}
		}
		fmt.Println(found)
	},

	"priority": func([]string) { say(unix.Setpriority(unix.PRIO_PROCESS, 0, -5)) },

	"x32": func([]string) { say(raw(0x40000000 | numberOf("x32 getpid"))) },

	"pair": func(args []string) {
		family, _ := strconv.Atoi(args[0])
		kind, _ := strconv.Atoi(args[1])
		_, err := unix.Socketpair(family, kind, 0)
		say(err)
	},

	"kill": func(args []string) {
		pid, _ := strconv.Atoi(args[0])
		say(unix.Kill(pid, unix.SIGTERM))
	},

	"kill-parent": func([]string) { say(unix.Kill(os.Getppid(), unix.SIGKILL)) },

	"limit-of": func(args []string) {
		pid, _ := strconv.Atoi(args[0])
		var l unix.Rlimit
		say(unix.Prlimit(pid, unix.RLIMIT_CPU, nil, &l))
	},

	"race":           func(args []string) { race(args[0], args[1]) },
	"interface-down": func([]string) { say(interfaceDown()) },

	"fork": func(args []string) { // until it is stopped, or so many
		n, _ := strconv.Atoi(args[0])
		for range n {
			if err := exec.Command("/bin/sleep", "1000").Start(); err != nil {
				fmt.Println("stopped")
				return
			}
		}
		fmt.Println("all")
	},

	"memory": func(args []string) { // MiB, each touched
		n, _ := strconv.Atoi(args[0])
		for range n {
			b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				unix.Exit(1)
			}
			for i := 0; i < len(b); i += 4096 {
				b[i] = 1
			}
		}
	},

	"files": func(args []string) { // so many, empty
		n, _ := strconv.Atoi(args[1])
		err := os.Mkdir(args[0], 0o777)
		for i := 0; err == nil && i < n; i++ {
			var fd int
			if fd, err = unix.Open(filepath.Join(args[0], strconv.Itoa(i)), unix.O_CREAT|unix.O_WRONLY, 0o644); err == nil {
				unix.Close(fd)
			}
		}
		say(err)
	},

	"spin": func(args []string) { // seconds of processor time; the runtime would ignore the signal
		setAction(uintptr(unix.SIGXCPU), &action{})
		n, _ := strconv.Atoi(args[0])
		for {
			var used unix.Rusage
			if unix.Getrusage(unix.RUSAGE_SELF, &used) != nil || used.Utime.Sec+used.Stime.Sec >= int64(n) {
				return
			}
		}
	},
}

// numberOf is the number of a call that the filter judges.
func numberOf(name string) uintptr {
	for _, c := range syscallTable() {
		if c.name == name && runtime.GOARCH == "arm64" {
			return uintptr(c.arm64)
		} else if c.name == name {
			return uintptr(c.amd64)
		}
	}
	return 39 // getpid of amd64, for its x32 table
}

// race writes to ws/sub/new while ws/sub is exchanged with a link to out.
func race(ws, out string) {
	folder, link := filepath.Join(ws, "sub"), filepath.Join(ws, "link")
	if err := os.Symlink(out, link); err != nil {
		say(err)
		return
	}
	done := make(chan error, 1)
	go func() {
		var err error
		for i := 0; i < 2000 && err == nil; i++ {
			err = unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
		}
		done <- err
	}()
	for {
		select {
		case err := <-done:
			if err == nil {
				fmt.Println("exchanged")
				return
			}
			say(err)
			return
		default:
			if fd, err := unix.Open(filepath.Join(folder, "new"), unix.O_CREAT|unix.O_WRONLY, 0o644); err == nil {
				unix.Close(fd)
			}
		}
	}
}

// interfaceDown asks the route family of netlink to switch the loopback off.
func interfaceDown() error {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	type request struct {
		unix.NlMsghdr
		unix.IfInfomsg
	}
	r := request{
		unix.NlMsghdr{Len: uint32(unsafe.Sizeof(request{})), Type: unix.RTM_NEWLINK, Flags: unix.NLM_F_REQUEST | unix.NLM_F_ACK},
		unix.IfInfomsg{Index: 1, Change: unix.IFF_UP},
	}
	if err := unix.Sendto(s, (*[unsafe.Sizeof(request{})]byte)(unsafe.Pointer(&r))[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	b := make([]byte, 4096)
	n, _, err := unix.Recvfrom(s, b, 0)
	if err != nil {
		return err
	}
	if n < 20 || binary.NativeEndian.Uint16(b[4:]) != unix.NLMSG_ERROR {
		return unix.EBADMSG
	}
	if no := -int32(binary.NativeEndian.Uint32(b[16:])); no != 0 {
		return syscall.Errno(no)
	}
	return nil
}

// elfWriter writes the little-endian numbers of a program's header.
type elfWriter struct{ b []byte }

func (w *elfWriter) bytes(b ...byte) { w.b = append(w.b, b...) }

func (w *elfWriter) half(n ...uint16) {
	for _, v := range n {
		w.b = binary.LittleEndian.AppendUint16(w.b, v)
	}
}

func (w *elfWriter) word(n ...uint32) {
	for _, v := range n {
		w.b = binary.LittleEndian.AppendUint32(w.b, v)
	}
}

func (w *elfWriter) long(n ...uint64) {
	for _, v := range n {
		w.b = binary.LittleEndian.AppendUint64(w.b, v)
	}
}
