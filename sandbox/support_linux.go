package sandbox

import (
	"errors"
	"os"
	"strings"
	"syscall"
)

// explain turns a failed step into the error for the caller. Steps that fail for
// want of a kernel feature or because the machine forbids them become an
// UnsupportedError that says what to do.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var known *SetupError
	var missing *UnsupportedError
	switch { // what a step inside of this one has explained is said once
	case errors.As(err, &missing):
		return missing
	case errors.As(err, &known):
		return known
	}
	var se *stageError
	if !errors.As(err, &se) {
		return &SetupError{Stage: "init", Err: err}
	}
	if l, ok := missingLayer(se); ok {
		return &UnsupportedError{Missing: []Layer{l}}
	}
	return &SetupError{Stage: se.stage, Path: se.path, Err: se.err}
}

// layerOf names the layer that a step belongs to.
var layerOf = []struct{ stage, layer string }{
	{"namespaces", "user namespaces"},
	{"loopback", "network namespace"},
	{"view", "mount view"},
	{"proc", "private /proc"},
	{"dev", "private /dev"},
	{"tmp", "private /tmp"},
	{"home", "private HOME"},
	{"capabilities", "capabilities"},
	{"no_new_privs", "no_new_privs"},
	{"landlock", "landlock"},
	{"seccomp", "seccomp"},
}

func missingLayer(se *stageError) (Layer, bool) {
	name := ""
	for _, l := range layerOf {
		if l.stage == se.stage {
			name = l.layer
		}
	}
	var no syscall.Errno
	_ = errors.As(se.err, &no)
	if name == "" {
		return Layer{}, false
	}
	l := Layer{Name: name, Reason: strings.TrimSpace(se.path + " " + se.err.Error())}
	switch se.stage {
	case "namespaces":
		switch no {
		case syscall.EACCES:
			// the program itself could not be executed by the command's user
			return Layer{}, false
		case syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE:
			return Layer{}, false // short of something, not missing
		}
		l.Remedy = namespaceRemedy(no)
	case "landlock":
		if no != 0 && no != syscall.ENOSYS && no != syscall.EOPNOTSUPP && !strings.Contains(se.err.Error(), "no Landlock") {
			return Layer{}, false
		}
		l.Remedy = "use Linux 5.15 or later and add landlock to the lsm= kernel parameter"
	case "seccomp":
		l.Remedy = "use a kernel with CONFIG_SECCOMP_FILTER on amd64 or arm64"
	case "proc":
		l.Remedy = "a container hides parts of /proc: run it with --security-opt systempaths=unconfined, or run the executor outside the container"
	default:
		switch no {
		case syscall.EPERM, syscall.EACCES:
			l.Remedy = namespaceRemedy(no)
		case syscall.ENOSYS:
			l.Remedy = "use Linux 5.15 or later; in a container allow the new mount calls in its seccomp profile"
		default:
			return Layer{}, false
		}
	}
	return l, true
}

func namespaceRemedy(no syscall.Errno) string {
	read := func(path string) string {
		b, _ := os.ReadFile(path)
		return strings.TrimSpace(string(b))
	}
	switch {
	case read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" && os.Geteuid() != 0:
		return "type: sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or give the postern binary an AppArmor profile with the userns rule"
	case read("/proc/sys/kernel/unprivileged_userns_clone") == "0" && os.Geteuid() != 0:
		return "type: sysctl -w kernel.unprivileged_userns_clone=1"
	case read("/proc/sys/user/max_user_namespaces") == "0" || no == syscall.ENOSPC:
		return "type: sysctl -w user.max_user_namespaces=15000"
	case strings.Contains(strings.ToLower(read("/proc/version")), "microsoft") && no == syscall.EINVAL:
		return "WSL 1 has no namespaces: type wsl --set-version DISTRIBUTION 2"
	case fileExists("/.dockerenv") || fileExists("/run/.containerenv"):
		return "the container forbids it: run it with --security-opt seccomp=unconfined --security-opt apparmor=unconfined and CAP_SYS_ADMIN, or run the executor outside"
	case no == syscall.EINVAL || no == syscall.ENOSYS:
		return "use Linux 5.15 or later with CONFIG_USER_NS, CONFIG_PID_NS, CONFIG_NET_NS, CONFIG_IPC_NS, CONFIG_UTS_NS and CONFIG_CGROUPS"
	}
	return "allow user namespaces on this machine; a seccomp or security module of the surroundings may forbid them"
}

func fileExists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
