package sandbox

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var zeroPage [4096]byte

// say prints an error as its short name.
func say(err error) {
	var no syscall.Errno
	switch {
	case err == nil:
		fmt.Println("OK")
	case errors.As(err, &no):
		if no == 0 {
			fmt.Println("OK")
			return
		}
		fmt.Println(unix.ErrnoName(no))
	default:
		fmt.Println(err)
	}
}

// raw makes a system call by number, with zero where no argument is given.
func raw(number uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	_, _, errno := unix.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno == 0 {
		return nil
	}
	return errno
}

// probeMain is what the test binary does under the name probeName. It never returns.
func probeMain(args []string) {
	runtime.LockOSThread()
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n }
	page := uintptr(unsafe.Pointer(&zeroPage[0]))
	switch args[0] {
	case "argv": // every argument with its length, in hexadecimal
		for _, a := range args[1:] {
			fmt.Println(len(a), hex.EncodeToString([]byte(a)))
		}
	case "count":
		n := 0
		for _, a := range args {
			n += len(a)
		}
		fmt.Println(len(args), n)
	case "args0":
		fmt.Println(os.Args[0])
	case "state": // signal state and nice value as the process was given them
		status, _ := os.ReadFile("/proc/self/status")
		for line := range strings.Lines(string(status)) {
			for _, key := range []string{"SigIgn", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp:"} {
				if strings.HasPrefix(line, key) {
					fmt.Println(strings.Join(strings.Fields(line), " "))
				}
			}
		}
	case "limits":
		for _, r := range []int{unix.RLIMIT_NOFILE, unix.RLIMIT_CORE, unix.RLIMIT_NPROC, unix.RLIMIT_FSIZE} {
			var l unix.Rlimit
			_ = unix.Getrlimit(r, &l)
			fmt.Print(int64(l.Max), " ")
		}
	case "tty":
		name, _ := os.Readlink("/proc/self/fd/0")
		size, err := unix.IoctlGetWinsize(0, unix.TIOCGWINSZ)
		if err != nil {
			say(err)
			break
		}
		group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
		fmt.Println(name, size.Row, size.Col, group == os.Getpid() && err == nil)
	case "wait-signal": // tells that it listens, then which signal came
		c := make(chan os.Signal, 1)
		signal.Notify(c, unix.SIGINT, unix.SIGUSR1, unix.SIGTERM)
		fmt.Println("ready")
		fmt.Println(<-c)
	case "ptrace":
		say(unix.PtraceAttach(number(1)))
	case "vmread":
		var b [8]byte
		_, err := unix.ProcessVMReadv(number(1), []unix.Iovec{{Base: &b[0], Len: 8}}, []unix.RemoteIovec{{Base: 0x400000, Len: 8}}, 0)
		say(err)
	case "pidfd-getfd":
		fd, err := unix.PidfdOpen(number(1), 0)
		if err == nil {
			_, err = unix.PidfdGetfd(fd, 3, 0)
		}
		say(err)
	case "mount":
		say(unix.Mount("none", "/mnt", "tmpfs", 0, ""))
	case "remount":
		say(unix.Mount("", "/", "", unix.MS_REMOUNT|unix.MS_BIND, ""))
	case "umount":
		say(unix.Unmount(args[1], unix.MNT_DETACH))
	case "fsopen":
		_, err := unix.Fsopen("tmpfs", 0)
		say(err)
	case "open_tree":
		_, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE)
		say(err)
	case "mount_setattr":
		say(unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}))
	case "chroot":
		say(unix.Chroot("/"))
	case "pivot_root":
		say(unix.PivotRoot("/", "/"))
	case "unshare":
		say(raw(unix.SYS_UNSHARE, unix.CLONE_NEWUSER))
	case "clone":
		r, _, errno := unix.RawSyscall6(unix.SYS_CLONE, unix.CLONE_NEWUSER|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno == 0 && r == 0 {
			unix.Exit(0)
		}
		say(errno)
	case "clone3":
		say(raw(unix.SYS_CLONE3, page, 64))
	case "setns":
		fd, err := unix.Open("/proc/self/ns/net", unix.O_RDONLY, 0)
		if err == nil {
			err = unix.Setns(fd, 0)
		}
		say(err)
	case "io_uring":
		say(raw(unix.SYS_IO_URING_SETUP, 8, page))
	case "bpf":
		say(raw(unix.SYS_BPF, 0, page, 48))
	case "perf":
		say(raw(unix.SYS_PERF_EVENT_OPEN, page, 0, ^uintptr(0), ^uintptr(0)))
	case "userfaultfd":
		say(raw(unix.SYS_USERFAULTFD, 0))
	case "add_key":
		_, err := unix.AddKey("user", "probe", []byte("x"), unix.KEY_SPEC_SESSION_KEYRING)
		say(err)
	case "module":
		say(raw(unix.SYS_INIT_MODULE, page, 16, page))
	case "kexec":
		say(raw(unix.SYS_KEXEC_LOAD))
	case "settime":
		var ts unix.Timespec
		_ = unix.ClockGettime(unix.CLOCK_REALTIME, &ts)
		say(unix.ClockSettime(unix.CLOCK_REALTIME, &ts))
	case "hostname":
		say(unix.Sethostname([]byte("probe")))
	case "syslog":
		_, err := unix.Klogctl(10, nil)
		say(err)
	case "handle":
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, "/etc/hosts", 0)
		if err == nil {
			fd, _ := unix.Open("/etc", unix.O_RDONLY, 0)
			_, err = unix.OpenByHandleAt(fd, h, unix.O_RDONLY)
		}
		say(err)
	case "personality":
		say(raw(unix.SYS_PERSONALITY, 0x0400000))
	case "fanotify":
		_, err := unix.FanotifyInit(0, 0)
		say(err)
	case "socket":
		fd, err := unix.Socket(number(1), number(2), number(3))
		if err == nil {
			unix.Close(fd)
		}
		say(err)
	case "tiocsti":
		request := uint64(unix.TIOCSTI)
		if len(args) > 1 {
			request |= 1 << 32 // the kernel looks at the low half only
		}
		say(raw(unix.SYS_IOCTL, 0, uintptr(request), page))
	case "setuid":
		say(raw(unix.SYS_SETRESUID, 0, 0, 0))
	case "scheduler":
		p := [1]int32{50}
		say(raw(unix.SYS_SCHED_SETSCHEDULER, 0, unix.SCHED_FIFO, uintptr(unsafe.Pointer(&p))))
	case "mknod":
		say(unix.Mknod(args[1], unix.S_IFBLK|0o666, int(unix.Mkdev(254, 0))))
	case "create-setuid":
		_, err := unix.Open(args[1], unix.O_CREAT|unix.O_WRONLY, 0o4755)
		say(err)
		_, err = unix.Openat2(unix.AT_FDCWD, args[1], &unix.OpenHow{Flags: unix.O_CREAT | unix.O_WRONLY, Mode: 0o4755})
		say(err)
		say(unix.Chmod(args[1], 0o2755))
	case "fifo": // must not wait for a reader
		_, err := unix.Open(args[1], unix.O_WRONLY|unix.O_NONBLOCK, 0)
		say(err)
	case "shm":
		_, err := unix.SysvShmGet(number(1), 0, 0)
		say(err)
	case "dial":
		c, err := net.DialTimeout(args[1], args[2], time.Minute)
		if err == nil {
			c.Close()
		}
		say(err)
	case "dial-held": // until the other end closes
		c, err := net.DialTimeout(args[1], args[2], time.Minute)
		if err == nil {
			_, err = io.Copy(io.Discard, c)
		}
		say(err)
	case "serve": // on an own port, which it tells, and on a name, until killed
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			say(err)
			break
		}
		if _, err := net.Listen("unix", args[1]); err != nil {
			say(err)
			break
		}
		fmt.Println("port", tcp.Addr().(*net.TCPAddr).Port)
		for {
			_, _ = unix.Poll(nil, -1)
		}
	case "listen": // a server on the own loopback works
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err == nil {
			_, err = net.Dial("tcp", l.Addr().String())
		}
		say(err)
	case "interfaces":
		list, err := net.Interfaces()
		for _, i := range list {
			fmt.Print(i.Name, " ")
		}
		say(err)
	default:
		more, ok := checkProbes[args[0]]
		if !ok {
			fmt.Println("no such probe:", args[0])
			unix.Exit(2)
		}
		more(args[1:])
	}
	unix.Exit(0)
}
