package sandbox

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// processChecks try to reach other processes, the init and the daemon.
var processChecks = []check{
	{
		id: "S01", attempt: "signal a process of the host, then all", script: `try "kill -9 $HOSTPID"; kill -9 -1; echo still`, want: "refused\nstill",
		prepare: victim, host: "a process of the same user lives", see: victimLives, carried: byPIDs,
	},
	{
		id: "S02", attempt: "see processes of the host", want: "few\nrefused",
		script:  `set -- /proc/[0-9]*; test $# -le 5 && echo few || echo $#; try "ls -d /proc/$HOSTPID"`,
		prepare: victim, carried: "view", note: "the private /proc shows the process ids of the sandbox",
	},
	{
		id: "S03", attempt: "end the init of the sandbox", script: `for s in KILL TERM SEGV INT PIPE HUP USR1; do kill -$s 1; done; echo still`, want: "still",
		host: "the command ends by itself", see: endedWell, carried: byInit,
	},
	{id: "S04", attempt: "trace the init", script: `$P ptrace 1`, want: "EPERM", carried: several},
	{id: "S05", attempt: "read the init's memory by system call", script: `$P vmread 1`, want: "EPERM", carried: several},
	{
		id: "S06", attempt: "read the init's memory, environment and map in /proc", want: "refused\nrefused\nrefused",
		script: `for f in environ maps mem; do try "head -c 1 /proc/1/$f"; done`, carried: several,
	},
	{id: "S07", attempt: "take a descriptor of the init", script: `$P pidfd-getfd 1`, want: "EPERM", carried: several},
	{
		id: "S08", attempt: "use descriptors of the daemon that were left open", script: `$P descriptors`, want: "none", carried: byInit,
		note: "the daemon of the test holds one that is not close-on-exec",
	},
	{
		id: "S09", attempt: "find the daemon's environment", carried: byInit, want: "0\n0",
		script: `env | grep -c SECRET; cat /proc/[0-9]*/environ 2>/dev/null | grep -c SANDBOX_TEST_SECRET`,
	},
	{
		id: "S10", attempt: "replace the daemon's program through /proc/1/exe", want: "refused\nrefused\nrefused",
		script:  `try "readlink /proc/1/exe"; try "printf x > /proc/1/exe"; try "printf x > $DAEMONFILE"`,
		prepare: daemonFile, host: "the program is as it was", see: func(s *stage) error { return unchanged(s.kept["daemon"])(s) }, carried: several,
	},
	{id: "S11", attempt: "type into the terminal (TIOCSTI)", script: `$P tiocsti`, want: "EPERM", tty: true, carried: "seccomp", unsafe: noTerminals},
	{id: "S12", attempt: "the same with bits that the kernel ignores", script: `$P tiocsti high`, want: "EPERM", tty: true, carried: "seccomp", unsafe: noTerminals},
	{id: "S13", attempt: "write to the daemon's terminal", script: `try "echo x > /dev/tty"`, want: "refused", carried: byInit, note: "a session of its own has none"},
	{id: "S14", attempt: "become root", script: `$P setuid; id -u`, want: "EINVAL|EPERM\n{uid}", carried: several},
	{id: "S15", attempt: "raise the priority", script: `$P priority; $P scheduler`, want: "EPERM|EACCES\nEPERM", carried: several},
	{
		id: "S16", attempt: "attach to System V memory of the host", script: `$P shm $KEY`, want: "ENOENT",
		prepare: sharedMemory, host: "there is such memory, open to all", carried: "namespaces",
	},
	{
		id: "S17", attempt: "leave a core dump in the root", want: "core 1\n0", carried: "limits",
		script: `set -- $($P limits); echo core $2; cd $WS; (sh -c 'kill -SEGV $$') 2>/dev/null; ls | grep -c core`,
		note:   "a limit of 1 byte: with 0 the machine's core program would still be started",
	},
	{id: "S18", attempt: "make readable memory executable (personality)", script: `$P personality`, want: "EPERM", carried: "seccomp"},
	{
		id: "S19", attempt: "call through the 32-bit table (int 0x80)", script: `$WS/int80 2>/dev/null; echo rc=$?`, want: "rc=159|rc=139", arch: "amd64",
		prepare: int80, carried: "seccomp", note: "kernels without that table answer with a fault",
	},
	{id: "S20", attempt: "call through the x32 table", script: `$P x32`, want: "ENOSYS", arch: "amd64", carried: several, uncertain: "seccomp"},
}

var noTerminals = [2]string{"view", "a command of another user gets no terminal then"}

func endedWell(s *stage) error {
	if s.out.ExitCode != 0 || s.out.Signal != 0 {
		return errors.New("the command did not end by itself")
	}
	return nil
}

func daemonFile(s *stage) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	s.kept["daemon"] = exe
	s.set("DAEMONFILE", exe)
	return keep(exe)(s)
}

func sharedMemory(s *stage) error {
	key := 0x70000000 | os.Getpid()
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() { _, _ = unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	s.set("KEY", strconv.Itoa(key))
	return nil
}

// int80 writes a program that asks to exit with 42 through the 32-bit table.
func int80(s *stage) error {
	const base, header = 0x400000, 64 + 56
	code := []byte{0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80, 0xf4} // mov eax, 1; mov ebx, 42; int 0x80; hlt
	var w elfWriter
	w.bytes(0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	w.half(2, 62) // an executable of x86-64
	w.word(1)
	w.long(base+header, 64, 0) // entry, program headers, no sections
	w.word(0)
	w.half(64, 56, 1, 0, 0, 0)
	w.word(1, 5) // to be loaded, readable and executable
	w.long(0, base, base, uint64(header+len(code)), uint64(header+len(code)), 0x1000)
	return s.write("ws/int80", string(append(w.b, code...)), 0o777)
}

// kernelChecks try the parts of the kernel that change the machine, or that most
// often had bugs.
var kernelChecks = []check{
	{id: "K01", attempt: "mount", script: `$P mount`, want: "EPERM", carried: several},
	{id: "K02", attempt: "mount by the newer calls", script: `$P fsopen; $P open_tree; $P mount_setattr`, want: "EPERM\nEPERM\nEPERM", carried: several},
	{id: "K03", attempt: "make the view writable again", script: `$P remount`, want: "EPERM", carried: several},
	{id: "K04", attempt: "change the root directory", script: `$P chroot; $P pivot_root`, want: "EPERM\nEPERM", carried: several},
	{
		id: "K05", attempt: "make a user namespace inside, by three calls", script: `$P unshare; $P clone; $P clone3`, want: "EPERM\nEPERM\nENOSYS", carried: "seccomp",
		note: "such a namespace gives capabilities, and with them the kernel's larger half",
	},
	{id: "K06", attempt: "enter another namespace", script: `$P setns`, want: "EPERM|EACCES", carried: several},
	{id: "K07", attempt: "io_uring, which makes calls that no filter sees", script: `$P io_uring`, want: "ENOSYS", carried: "seccomp"},
	{id: "K08", attempt: "load a BPF program", script: `$P bpf`, want: "EPERM", carried: several, uncertain: "seccomp"},
	{id: "K09", attempt: "watch the machine with perf", script: `$P perf`, want: "EPERM", carried: several, uncertain: "seccomp"},
	{id: "K10", attempt: "handle page faults (userfaultfd)", script: `$P userfaultfd`, want: "EPERM", carried: several, uncertain: "seccomp"},
	{id: "K11", attempt: "use the kernel's keys", script: `$P add_key; $P call keyctl`, want: "EPERM\nEPERM", carried: "seccomp"},
	{id: "K12", attempt: "load a kernel module", script: `$P module; $P call finit_module`, want: "EPERM|ENOSYS\nEPERM|ENOSYS", carried: several},
	{
		id: "K13", attempt: "start another kernel, restart, swap, account", want: "EPERM|ENOSYS\nEPERM\nEPERM|ENOSYS\nEPERM|ENOSYS", carried: several,
		script: `for c in kexec_load reboot swapon acct; do $P call $c; done`,
	},
	{id: "K14", attempt: "set the clock", script: `$P settime`, want: "EPERM", carried: several},
	{
		id: "K15", attempt: "set the host name", script: `$P hostname; try "echo x > /proc/sys/kernel/hostname"`, want: "EPERM\nrefused", carried: several,
		prepare: keep("/proc/sys/kernel/hostname"), host: "the name is as it was", see: unchanged("/proc/sys/kernel/hostname"),
	},
	{id: "K16", attempt: "read the kernel's log", script: `$P syslog`, want: "EPERM", carried: several, uncertain: "seccomp"},
	{id: "K17", attempt: "ask for I/O ports", script: `$P call iopl`, want: "EPERM", arch: "amd64", carried: several, uncertain: "seccomp"},
	{
		id: "K18", attempt: "write kernel settings", want: "refused\nrefused\nrefused", carried: several,
		script:  `for f in sys/kernel/core_pattern sys/vm/drop_caches sysrq-trigger; do try "echo b > /proc/$f"; done`,
		prepare: keep("/proc/sys/kernel/core_pattern"), host: "the pattern is as it was", see: unchanged("/proc/sys/kernel/core_pattern"),
	},
	{
		id: "K19", attempt: "make a group, name a program for its end", want: "refused\nrefused\nrefused", carried: several,
		script: `try "mkdir /sys/fs/cgroup/$ID"; try "mkdir /sys/fs/cgroup/unified/$ID"; try "echo x > /sys/fs/cgroup/memory/release_agent"`,
		host:   "no such group", see: missing("/sys/fs/cgroup/ID", "/sys/fs/cgroup/unified/ID"),
	},
	{
		id: "K20", attempt: "write to /sys", script: `try "echo x > /sys/power/state"; try "echo x > /sys/kernel/uevent_helper"`, want: "refused\nrefused", carried: several,
	},
	{
		id: "K21", attempt: "read the kernel's addresses, keys and memory", want: "0\n0", carried: "view",
		script: `cat /proc/kallsyms /proc/keys 2>/dev/null | wc -c; head -c 1 /proc/kcore 2>/dev/null | wc -c`,
	},
	{id: "K22", attempt: "watch whole file systems (fanotify)", script: `$P fanotify`, want: "EPERM", carried: several},
}
