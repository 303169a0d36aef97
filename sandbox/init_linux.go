package sandbox

import (
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names of the hidden roles, found in argv[0].
const (
	rolePrefix  = "postern-sandbox-"
	roleBuilder = rolePrefix + "init"    // first life of the init: builds the view and gives up its rights
	roleInit    = rolePrefix + "main"    // second life: fully confined, runs the command
	roleReduced = rolePrefix + "reduced" // the init of the reduced level, which has one life
	roleSpawner = rolePrefix + "spawner" // starts inits for the daemon
	roleSession = rolePrefix + "session" // starts the inits of one network session
	roleHold    = rolePrefix + "hold"    // keeps a user namespace open for an ID-mapped mount
	roleHelper  = rolePrefix + "helper-" // followed by the name of a registered function, which runs as a command
	roleTry     = rolePrefix + "probe"   // tries one layer, for Probe
)

// controlFD is the descriptor that a hidden role starts with.
const controlFD = 3

// exitBroken is how a hidden role ends when it cannot do its work. All of them end by
// unix.Exit: they have nothing to flush, and the race detector's own end takes a
// second.
const exitBroken = 125

// initCalled is written once, before anything else of the program runs.
var initCalled bool

// Init must be the first statement of main, and of TestMain, in every program that
// uses this package, but for RegisterHelper; NewLauncher refuses to work otherwise. It says that the program
// may be started again, as one of the package's hidden helpers. Those never get as
// far as main.
//
// It runs the helpers that were registered by then: those need packages that are initialized.
func Init() {
	initCalled = true
	if len(os.Args) == 0 {
		return
	}
	if name, ok := strings.CutPrefix(os.Args[0], roleHelper); ok {
		if main := helpers[name]; main != nil {
			os.Exit(main(os.Args[1:]))
		}
		os.Exit(exitBroken)
	}
}

// A helper begins here, before packages that it has no use for are initialized:
// in a large program they take longer than its own work.
func init() {
	if len(os.Args) == 0 || !strings.HasPrefix(os.Args[0], rolePrefix) {
		return
	}
	if strings.HasPrefix(os.Args[0], roleHelper) {
		return // Init knows it
	}
	runtime.LockOSThread()
	switch os.Args[0] {
	case roleBuilder:
		builderMain()
	case roleInit:
		initMain()
	case roleReduced:
		levelStanding()
		initMain()
	case roleSpawner:
		runtime.UnlockOSThread()
		spawnerMain()
	case roleSession:
		sessionMain()
	case roleHold:
		var b [1]byte
		for {
			if n, err := unix.Read(0, b[:]); n == 0 && err == nil || err != nil && err != unix.EINTR {
				unix.Exit(0)
			}
		}
	case roleTry:
		tryMain()
	}
	unix.Exit(exitBroken)
}

// builderMain is the first life of a sandbox's init. It holds capabilities of its
// own namespaces only, and ends by executing itself with none: a new program image
// has no thread that could have kept any.
func builderMain() {
	err := build()
	_ = sendMessage(controlFD, 0, msgError, encodeError(err))
	unix.Exit(exitBroken)
}

func build() error {
	syscall.Umask(0o022)
	resetSignals()
	levelStanding()
	exe, err := unix.Open("/proc/self/exe", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail("init program", "", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fail("init", "", err)
	}
	if err := unix.CloseRange(3, ^uint(0), unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fail("descriptors", "", err)
	}
	s, err := awaitSetup()
	if err != nil {
		return fail("request", "", err)
	}
	if testOnlyOmit.namespaces == 0 && s.network.Session == "" && s.network.Mode != NetworkHost {
		if err := openNetwork(s.network.Mode); err != nil {
			return err
		}
	}
	v := &view{}
	if !testOnlyOmit.view {
		if v, err = buildView(s); err != nil {
			return err
		}
	}
	if err := dropPrivileges(); err != nil {
		return err
	}
	var writable []string
	for _, p := range s.pieces {
		if !p.readOnly {
			writable = append(writable, p.path)
		}
	}
	if !testOnlyOmit.landlock {
		if err := landlock(landlockRules(writable), exe); err != nil {
			return err
		}
	}
	if !testOnlyOmit.seccomp {
		told, err := installToldFilter()
		if err != nil {
			return err
		}
		if told >= 0 {
			if err := sendMessage(controlFD, 0, msgNotices, nil, told); err != nil {
				return fail("seccomp", "", err)
			}
			unix.Close(told)
		}
	}
	argv := []string{roleInit}
	for _, fd := range v.pins {
		argv = append(argv, itoa(fd))
	}
	for _, fd := range append(v.pins, controlFD) {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return fail("descriptors", "", err)
		}
	}
	return fail("init program", "", syscall.Exec("/proc/self/fd/"+itoa(exe), argv, helperEnv()))
}

// awaitSetup waits, for long in an init that was started ahead.
func awaitSetup() (*setup, error) {
	kind, body, trees, err := recvLarge(controlFD)
	if errors.Is(err, io.EOF) {
		unix.Exit(0) // the daemon has no use for this one any more
	}
	if err != nil {
		return nil, err
	}
	if kind != msgSetup {
		return nil, errors.New("not a set-up")
	}
	s, err := decodeSetup(body)
	if err != nil {
		return nil, err
	}
	for i := range s.pieces {
		p := &s.pieces[i]
		if p.tree >= len(trees) {
			return nil, errors.New("a mount is missing")
		}
		if p.tree >= 0 {
			p.tree = trees[p.tree]
		}
	}
	return s, nil
}

// levelStanding gives up what a daemon may have been given above others: protection
// from the kernel's out-of-memory choice, and a negative nice value. The other way
// round needs rights that nobody has here, and is left as it is.
func levelStanding() {
	const file = "/proc/self/oom_score_adj"
	if b, err := os.ReadFile(file); err == nil && len(b) > 0 && b[0] == '-' {
		_ = os.WriteFile(file, []byte("0"), 0)
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 0)
}

// helperEnv is all that a hidden role gets: nothing of the daemon's environment.
// The setting keeps the Go runtime small.
func helperEnv() []string { return append([]string{"GOMAXPROCS=2"}, testOnlyEnv...) }

// builderEnv is for the first life of an init, which does one thing at a time.
func builderEnv() []string { return append([]string{"GOMAXPROCS=1"}, testOnlyEnv...) }
