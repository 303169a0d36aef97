package sandbox

import (
	"fmt"
	"os"
	"syscall"
	"time"
)

// Mode is how much of the machine a command may touch. The zero value is
// invalid, so that nobody gets a mode by forgetting to choose one.
type Mode int

const (
	_ Mode = iota
	// ReadOnly shows the machine but lets the command write only to its private
	// /tmp, /var/tmp, /dev/shm and HOME.
	ReadOnly
	// WorkspaceWrite is ReadOnly plus writable workspace roots.
	WorkspaceWrite
	// FullAccess has no sandbox at all: the daemon's own identity, files and
	// network. It is refused unless Options.AllowFullAccess is set.
	FullAccess
)

var modeNames = [...]string{ReadOnly: "read-only", WorkspaceWrite: "workspace-write", FullAccess: "full-access"}

// ParseMode reads the text form of a mode: "read-only", "workspace-write" or
// "full-access". Anything else, the empty string included, is an error.
func ParseMode(s string) (Mode, error) {
	for m, name := range modeNames {
		if name != "" && name == s {
			return Mode(m), nil
		}
	}
	return 0, fmt.Errorf("unknown sandbox mode %q: use read-only, workspace-write or full-access", s)
}

// String returns the text that ParseMode reads, or "invalid".
func (m Mode) String() string {
	if m < ReadOnly || m > FullAccess {
		return "invalid"
	}
	return modeNames[m]
}

// View is how much of the machine a command sees. What it may write does not depend on it.
type View int

const (
	// ViewFull shows everything but what is hidden, read-only.
	ViewFull View = iota
	// ViewMinimal shows the system's own directories (/usr and what belongs to it, /etc,
	// /sys), the roots and the ReadRoots. Everything else of the machine, such as /home,
	// /root, /srv, /opt and /var, is not there.
	ViewMinimal
)

// Policy says what one command may see and change. The zero value is refused.
type Policy struct {
	// Mode must be set.
	Mode Mode
	// Roots are the absolute, clean paths of the workspace directories, without a
	// symbolic link in any component. They are writable under WorkspaceWrite and
	// visible read-only under ReadOnly; roots may lie below /tmp.
	Roots []string
	// ProtectedNames are entries directly below every root that stay read-only,
	// also when they do not exist: an empty directory then holds the place and is
	// removed afterwards if it is still empty. Nil means .git, .postern, .codex
	// and .agents; an empty non-nil slice protects nothing.
	ProtectedNames []string
	// HiddenPaths are absolute paths to hide besides the built-in ones (keys and
	// cloud credentials of the daemon's user and of root) and those in Options.
	// A path that does not exist is ignored.
	HiddenPaths []string
	// View is how much of the machine the command sees; zero is ViewFull.
	View View
	// ReadRoots are more absolute, clean directories to see, for ViewMinimal. They
	// stay read-only, and their files keep their owners.
	ReadRoots []string
	// UnixSockets are absolute, clean paths of sockets of the machine that commands may
	// connect to, such as one in /run, which is hidden otherwise. Whoever listens
	// there is outside the sandbox and does what it likes for the command.
	UnixSockets []string
	// TmpBytes limits the private /tmp, /var/tmp and HOME, each in bytes; the
	// memory is taken only as it is written. Zero means 512 MiB.
	TmpBytes int64
	// Network is what the command reaches; zero is nothing but its own loopback. FullAccess has the
	// machine's network whatever it says.
	Network Network
	// Limits are the resource limits of each process of the command.
	Limits Limits
}

// Limits are resource limits. Zero fields take the default given with the field; core
// dumps are always off. They do not apply to FullAccess unless set. MemoryBytes,
// Processes and CPUMilli are of the whole command where the machine lets the daemon make
// cgroups (Probe tells); else the first two bound each process, and CPUMilli is refused.
type Limits struct {
	// MemoryBytes is the memory of the command; zero means no limit.
	MemoryBytes uint64
	// CPUMilli is processor time in thousandths of one processor; zero means no limit.
	CPUMilli uint64
	// OpenFiles is RLIMIT_NOFILE; zero means 8192, or less if the daemon has less.
	OpenFiles uint64
	// Processes is RLIMIT_NPROC, which counts the threads of the sandbox, or those of
	// all sandboxes of a network session; zero means 4096.
	Processes uint64
	// FileBytes is RLIMIT_FSIZE in bytes; zero means no limit.
	FileBytes uint64
	// DataBytes is RLIMIT_DATA in bytes; zero means no limit. The address space is
	// not limited: many runtimes reserve far more of it than they use.
	DataBytes uint64
	// CPUSeconds is RLIMIT_CPU in seconds; zero means no limit.
	CPUSeconds uint64
}

// WinSize is the size of a terminal in characters.
type WinSize struct {
	Rows, Cols uint16
}

// Command is what to run. Argv needs at least one element.
type Command struct {
	// Argv reaches the process byte for byte. Argv[0] is looked up inside the view
	// in the command's own PATH unless it holds a slash.
	Argv []string
	// Arg0, if not empty, replaces argv[0] as the process sees it.
	Arg0 string
	// Helper, if not empty, is what to run instead of a program: a function that was given to RegisterHelper. Argv
	// are its arguments then, from the first on, and may be empty; Arg0 must be.
	Helper string
	// Env is the exact environment as KEY=value; of duplicates the last one wins.
	// HOME, USER, LOGNAME, SHELL, PATH and LANG are added where the key is absent.
	Env []string
	// Dir is the working directory, looked up inside the view. Empty means the
	// first root, else HOME. It never makes anything writable.
	Dir string
	// Umask is the file mode mask; zero or less means 022.
	Umask int
	// Stdin, Stdout and Stderr are handed to the command; nil means /dev/null.
	// Start does not close them, but puts them into blocking mode, which programs
	// expect. Ignored when TTY is set.
	Stdin, Stdout, Stderr *os.File
	// TTY, if not nil, runs the command on a new terminal of the sandbox's own
	// devpts, as leader of a new session with it as the controlling terminal.
	TTY *WinSize
}

// Options are what the owner of the machine decides once for all commands.
type Options struct {
	// AllowFullAccess permits Policy.Mode FullAccess.
	AllowFullAccess bool
	// Reduced is for a machine without user namespaces: Landlock (Linux 6.12 or later)
	// and seccomp alone confine commands. It is never taken for want of better; the owner
	// of the machine must choose it, knowing what it lacks:
	//
	//   - ProtectedNames are not protected: a root is writable as a whole. A hidden path
	//     inside a root is refused.
	//   - Landlock says nothing about metadata: what belongs to the command's user can be
	//     given other modes, times and attributes anywhere, and names, sizes and owners of
	//     all files can be seen. Below a root daemon that user owns nothing else.
	//   - Processes of the machine are visible, with their command lines, and processes
	//     that the command leaves are found only while its init lives.
	//   - A folder with something hidden in it cannot be listed, and what is put there
	//     later cannot be read.
	//   - There is no loopback and no other socket but connected pairs: any Network but the
	//     zero value is refused. There is no writable /tmp
	//     or /dev/shm but TMPDIR, whose size is not limited, and no account of the
	//     command's own. UnixSockets are refused.
	//   - The private folder with HOME and TMPDIR stays behind if the daemon is killed.
	//   - Owners are not mapped: below a root daemon, workspaces must belong to UID.
	Reduced bool
	// UID and GID are the identity of commands when the daemon is root. Zero means
	// 60777, an identity no distribution hands out. An ordinary user's daemon runs
	// commands as that user and refuses any other value.
	UID, GID int
	// HiddenPaths are absolute paths that no command may see, such as the folder
	// with the daemon's state and keys.
	HiddenPaths []string
	// ReadRoots and UnixSockets are added to those of every policy.
	ReadRoots, UnixSockets []string
	// WarmPerPolicy is how many sandboxes are kept ready for each policy in use, so
	// that the next command of it starts in a fraction of the time. Each serves one
	// command. Zero means 2; a negative number keeps nothing ready at all.
	WarmPerPolicy int
	// WarmTotal bounds the ready sandboxes of all policies together; each takes some
	// 1.5 MiB of memory. Zero means 16; a negative number keeps nothing ready. One
	// spare process that is bound to no policy comes on top.
	WarmTotal int
	// WarmIdle is how long ready sandboxes are kept after the last Start of their
	// policy, and with them the placeholders of missing protected names. Zero means
	// one minute; a negative duration keeps nothing ready.
	WarmIdle time.Duration
}

// Stats counts what a Launcher has done since it was made.
type Stats struct {
	// Warm and Cold are the commands that got a sandbox made ahead, and those for
	// which one had to be made. Together they are all that started.
	Warm, Cold uint64
	// Ready is the number of sandboxes that wait for a command now.
	Ready int
	// Built is how many were made ahead, Failed how many could not be, and Dropped
	// how many ended unused: the policy was idle, the file system had changed, or
	// another policy needed the room.
	Built, Failed, Dropped uint64
}

// Result is how a command ended.
type Result struct {
	// ExitCode is the code the main process gave to exit, -1 if a signal ended it.
	ExitCode int
	// Signal is the signal that ended the main process, or zero.
	Signal syscall.Signal
	// Hit are the limits that the command ran into.
	Hit LimitsHit
	// NoRoutes is how often packets of a command that failed found no way out of its network, of all commands of a session in
	// that time. It is zero with NetworkHost, where that says nothing about the sandbox.
	NoRoutes uint64
	// Strays is how many other processes were still alive when the main process
	// ended; all of them have been killed.
	Strays int
	// UserTime and SystemTime are the processor time of the main process and of
	// the children it waited for; MaxRSS is its peak memory in bytes.
	UserTime, SystemTime time.Duration
	MaxRSS               int64
}

// LimitsHit says which limits a command ran into, whether or not they ended it.
type LimitsHit struct {
	Memory, Processes, CPUTime, FileSize bool
}

// Layer is one mechanism of the sandbox, as Probe found it.
type Layer struct {
	// Name is short and stable, such as "user namespaces" or "landlock".
	Name string
	// OK tells that the layer was set up for real.
	OK bool
	// Optional tells that commands run without it too; some limits then bound each
	// process only, or are refused.
	Optional bool
	// Detail says more of a layer that works.
	Detail string
	// Reason says why not, Remedy what to do about it. Both are empty when OK.
	Reason, Remedy string
}

// Report is what Probe found.
type Report struct {
	Layers []Layer
}

// OK tells whether every layer that commands need works. An empty report is not OK.
func (r Report) OK() bool {
	for _, l := range r.Layers {
		if !l.OK && !l.Optional {
			return false
		}
	}
	return len(r.Layers) > 0
}

var defaultProtected = []string{".git", ".postern", ".codex", ".agents"}
