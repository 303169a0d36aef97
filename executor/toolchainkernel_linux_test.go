//go:build toolchains

package executor

import (
	"strings"
	"testing"
)

// What programs ask the kernel for, and get.
func TestLocksWatchesPipesSocketsAndExecutableMemoryWork(t *testing.T) {
	b := newBench(t, "python3", "flock", "mkfifo")
	for _, folder := range []string{"/tmp", "/var/tmp", "/dev/shm", "$HOME", "$PWD"} {
		b.wants("cd "+folder+`
( flock -n 9 && echo locked; flock -n lock true || echo held ) 9> lock
mkfifo fifo; echo through > fifo & cat fifo`, "locked\nheld\nthrough")
	}
	b.file("parts.py", `
import ctypes, fcntl, mmap, os, socket, select, sys

libc = ctypes.CDLL(None, use_errno=True)
answer = b"\xb8\x2a\x00\x00\x00\xc3" if os.uname().machine == "x86_64" else b"\x40\x05\x80\x52\xc0\x03\x5f\xd6" # return 42

def watch(folder):
    fd = libc.inotify_init1(os.O_CLOEXEC)
    assert libc.inotify_add_watch(fd, folder.encode(), 0x100) > 0
    open(folder + "/watched", "w").close()
    return os.read(fd, 4096)[16:].rstrip(b"\0").decode()

def talk(address):
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen()
    client = socket.socket(socket.AF_UNIX)
    client.connect(address)
    peer = server.accept()[0]
    peer.sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, os.open("/dev/null", os.O_RDONLY).to_bytes(4, sys.byteorder))])
    _, control, _, _ = client.recvmsg(1, socket.CMSG_SPACE(4))
    return len(control), os.getpid() == int.from_bytes(client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)

def execute(memory):
    return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(memory)))()

for folder in ("/tmp", "/var/tmp", "/dev/shm", os.environ["HOME"], os.getcwd()):
    with open(folder + "/code", "w+b") as f:
        f.write(answer.ljust(4096, b"\0"))
        f.flush()
        fcntl.lockf(f, fcntl.LOCK_EX)
        print(watch(folder), talk(folder + "/socket"), execute(mmap.mmap(f.fileno(), 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)))
memory = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
memory.write(answer)
fd = os.memfd_create("program")
os.write(fd, open("/bin/true", "rb").read())
print(talk("\0abstract"), execute(memory), os.spawnve(os.P_WAIT, f"/proc/self/fd/{fd}", ["true"], {}))
epoll, event = select.epoll(), libc.eventfd(1, 0)
epoll.register(event)
print(len(epoll.poll(1)), libc.timerfd_create(1, 0) > 0, os.sched_getaffinity(0) != set(), os.pidfd_open(os.getpid()) > 0)
`)
	b.wants("python3 parts.py", strings.Repeat("watched (1, True) 42\n", 5)+"(1, True) 42 0\n1 True True True")
}

func TestTimeoutNohupAndJobsWork(t *testing.T) {
	b := newBench(t, "timeout", "nohup", "setsid", "nice")
	b.wants("timeout 0.1 sleep 60 || echo $?", "124")
	b.wants("nohup sh -c 'echo on' 2>/dev/null; nice -n 5 nice; setsid -w echo session; sleep 60 & kill $!; wait $! || echo $?", "on\n5\nsession\n143")
	// What is left in the background ends with the command, nohup or not.
	if e := b.try("nohup sleep 60 > /dev/null 2>&1 &"); e.code != 0 || e.status.Strays != 1 {
		t.Errorf("a background process: %+v", e)
	}
}

// What is refused, and that whoever tries is told so rather than left to wait.
func TestWhatTheSandboxRefusesFailsAtOnceAndSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		program, script string
		says            []string // one of them
	}{
		"trace":         {"strace", "strace true", []string{"Operation not permitted"}},
		"debug":         {"gdb", "gdb -q -batch -ex run /bin/true 2>&1 | grep ptrace >&2; false", []string{"Operation not permitted"}},
		"leak check":    {"gcc", "printf 'int main(void) { return 0; }' > a.c; gcc -fsanitize=address a.c && ./a.out", []string{"LeakSanitizer has encountered a fatal error"}},
		"become root":   {"sudo", "sudo -n true", []string{"no new privileges"}},
		"become other":  {"su", "su -c true nobody < /dev/null", []string{"Authentication failure", "must be run from a terminal"}},
		"log in":        {"ssh", "ssh -o BatchMode=yes -o ConnectTimeout=5 192.0.2.1 true", []string{"Network is unreachable"}},
		"resolve":       {"ssh", "ssh -o BatchMode=yes host.example true", []string{"Could not resolve hostname"}},
		"namespace":     {"unshare", "unshare --user true", []string{"Operation not permitted"}},
		"mount":         {"mount", "mount -t tmpfs none /mnt", []string{"must be superuser", "permission denied", "Operation not permitted"}},
		"set-gid":       {"chmod", "mkdir d; chmod g+s d", []string{"Operation not permitted"}},
		"shared git":    {"git", "git init -q --shared d", []string{"Could not make"}},
		"system folder": {"touch", "touch /usr/local/bin/x", []string{"Read-only file system"}},
		"kernel log":    {"dmesg", "dmesg", []string{"Operation not permitted"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, c.program)
			e := b.try(c.script)
			told := false
			for _, says := range c.says {
				told = told || strings.Contains(e.stderr, says)
			}
			if e.code == 0 || !told {
				t.Errorf("%s: %d, said %q, want one of %q", c.script, e.code, e.stderr, c.says)
			}
		})
	}
}

func TestAddressSanitizerWorksWithoutItsLeakCheck(t *testing.T) {
	b := newBench(t, "gcc")
	b.env = []string{"ASAN_OPTIONS=detect_leaks=0"}
	b.file("a.c", "#include <stdlib.h>\nint main(int argc, char **argv) { char *p = malloc(4); p[argc + 3] = 1; return 0; }\n")
	if e := b.try("gcc -g -fsanitize=address,undefined a.c && ./a.out"); e.code == 0 || !strings.Contains(e.stderr, "heap-buffer-overflow") {
		t.Errorf("an overflow: %+v", e)
	}
	b.wants("echo 'int main(void) { return 0; }' > b.c && gcc -fsanitize=address b.c -o b && ./b && echo clean", "clean")
}
