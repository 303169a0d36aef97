// Package sandbox turns a policy into one confined operating system process. It is
// a leaf that knows nothing of the network or of who asked; it does not decide
// policies, bound output, enforce deadlines or touch cgroups. Start reading at
// Launcher.Start, then init_linux.go for what happens inside.
//
// # Who does what
//
// The daemon (any program with Init as the first statement of main) checks the
// policy, opens the roots without following symbolic links, holds the places of
// missing protected names, and makes ID-mapped mounts when it is root. Requests and
// results travel over a SOCK_SEQPACKET pair per command, long requests in a memfd;
// nothing of a command travels in argv or in the environment, both of which can be
// read by others.
//
// The helpers are the daemon's own binary under another argv[0]. They begin when this
// package is initialized, before main and before packages they have no use for. Go
// initializes packages in the order of their import paths, each when all that it
// imports is, so this one imports nothing large that comes late.
//
// The spawner is such a helper, one per Launcher.
// It clones each init, in new user, mount, pid, ipc, uts, cgroup and network
// namespaces, already as the command's user, and reaps it. It exists because such a
// clone copies page tables, which costs tens of milliseconds from a daemon that has
// touched some hundred MiB. It sees neither commands nor policies, a new one takes
// its place if it dies, and running commands do not notice.
//
// The init is PID 1 inside and has two lives. The first builds the view with the
// capabilities that its own namespaces give it, and ends by executing itself
// without any. The second is as confined as the command and not dumpable; it runs
// the command, passes signals on, reaps orphans, kills what is left when the
// command ends, and ends everything when its socket to the daemon closes and the
// lease (lease_linux.go: none) is over.
//
// The command has descriptors 0, 1 and 2, its own session, default signal
// dispositions and no blocked signals. A negative nice value or out-of-memory
// protection of the daemon is not passed on; a positive nice value is.
//
// # Order of set-up
//
// Every step fails closed with its name in a SetupError or UnsupportedError:
//
//  1. daemon: policy, roots, protected names, ID-mapped mounts
//  2. spawner: clone with all namespaces
//  3. init, first life: not dumpable, every descriptor close-on-exec, its instructions
//     from the daemon, loopback up and the daemon's listener handed out
//  4. the whole tree cloned read-only, nosuid and nodev, and pivoted into; sources
//     are taken from the old root by descriptor
//  5. own /proc and /dev, masks, private /tmp, /var/tmp, /run and HOME, account
//     files, roots, protected names, and hidden paths last, so that they win
//  6. capabilities, bounding set and no_new_privs; Landlock; seccomp
//  7. exec of the second life; resource limits, working directory and PATH lookup
//     inside the view; fork, new session, terminal, exec of the command
//
// Start returns after that last exec has succeeded.
//
// # Made ahead
//
// All but step 7 costs about ten times a plain start, so that the pool (pool_linux.go)
// does it ahead. After a Start of a policy it makes sandboxes of that policy which wait
// for their command: one, and up to Options.WarmPerPolicy once one has been used. Each
// serves one command and is never put back. It is used only if the policy still meets
// the same files (sight_linux.go): the same inodes at every root, protected name and
// hidden path, the same owners, the same set of names that exist, the same account
// files, and no change in the host's mount table. The waiting init keeps all those
// inodes in use, so that a number cannot come to mean another file, and it runs
// nothing before that check has passed. Anything else, and the command gets a sandbox
// made for it. For policies without a ready sandbox one spare init waits in its
// namespaces (spare_linux.go). Refilling is done one sandbox at a time, after the start
// and in the background; failures are counted in Stats and wait before the next try.
//
// What users can notice of it: the placeholders of missing protected names stay for
// Options.WarmIdle after the last Start, or until Close, instead of going with the
// command. They are empty directories: git does not see them, git init fills .git in
// place, and what is in them by then stays; but git clone into the workspace itself
// wants it empty, go build takes an empty .git for a repository (README.md has the
// remedy), and rmdir of a placeholder only costs the ready sandboxes. A file
// system can be unmounted meanwhile, but its device stays busy until the sandboxes are
// dropped, which the next Start, the idle time or Close does. With WarmPerPolicy below
// zero nothing is kept, and places are gone when Wait returns. BENCHMARKS.md has the
// figures.
//
// # Network
//
// A command has a network namespace of its own, and under NetworkProxy the daemon listens in it: the init
// opens the socket and hands it out, and a socket stays in its namespace. So whoever serves it (package egress) is the only way out, with
// no bridge, no path and no secret in there. Under NetworkHost there is no such namespace. A network session is a network
// and a user namespace that several commands share; what forks their inits lives in there (session_linux.go). The name
// server of a command without a way out is an address without a route, so that look-ups fail at once and are counted.
//
// # What was refused
//
// Process.Denials tells why a command may have failed, from evidence: the kernel reports refused system calls to the daemon,
// which answers each with the filter's own error (notify_linux.go); the init counts packets without a route; limits leave
// their signs; and what a command complains of counts where the policy gives that error for that path (complaints_linux.go). DENIALS.md has
// what is found and what is not. README.md says what to allow for which tool.
//
// # Helpers
//
// RegisterHelper makes a function of the daemon's program one that can run as a command: it is the seam for what the daemon
// does to files on a client's behalf, within the client's own policy.
//
// # The reduced level
//
// A machine without user namespaces refuses to start anything. If its owner sets
// Options.Reduced, the init has one life and no namespaces: it runs as the command's
// user, and the thread that forks the command puts itself under Landlock and a
// stricter filter first. What that lacks is listed at the option. Launcher.Level and
// Probe tell which level it is; there is no way from one to the other but the option.
//
// # Identity
//
// No command ever runs as uid 0 of the host. Below a root daemon it runs as
// Options.UID or 60777 and sees roots of another owner through ID-mapped mounts:
// what it writes belongs on disk to the owner of the root. Where a file system
// cannot do that, the workspace must belong to the command's uid, or Start fails
// with a text that says so. Below an ordinary user it runs as that user, and keeps
// that user's supplementary groups for reading.
//
// # What is promised
//
// Writes reach the writable roots, /tmp, /var/tmp, /dev/shm and HOME only. The
// protected names of each root do not change. Hidden paths are not readable. There
// is no network but the own loopback, the daemon's listener if it was asked for, and that of a session. Other processes of the machine are neither
// visible nor reachable. Nothing outlives the command, whatever it forks, and
// nothing outlives the daemon. No set-uid or set-gid file can be made. FullAccess
// promises only that nothing outlives the command, as long as the command does not
// kill its own init.
//
// # What is not
//
// The kernel is shared: a kernel bug goes through every layer, and the machine is
// the outer wall. Unix sockets that are visible outside /run can be connected to if
// their mode allows it. Readable files can be locked with flock. Files that other
// users may read stay readable unless hidden. A FIFO in a read-only root below /tmp,
// or under a protected name, can still be written to. A file system mounted over or an
// entry renamed on the host while a command runs takes mounts of the view with it,
// protected names included. Whatever the host later executes from a workspace
// (build files, hooks outside the protected names) belongs to the command. Space in
// the workspace is not limited. A placeholder directory stays behind if the daemon
// is killed; it is empty, and git does not mind it. With the first Landlock version
// (Linux 5.13 to 5.18) files cannot be renamed from one directory to another.
package sandbox
