package sandbox

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// crippledName is the argv[0] under which the test binary takes a feature from
// itself and then tries to start a command.
const crippledName = "sandbox-test-crippled"

// sharedName is the argv[0] of sharedMain.
const sharedName = "sandbox-test-shared"

// takeAway makes some system calls of this process and its children fail.
func takeAway(answer verdict, numbers ...uint32) error {
	var a assembler
	a.load(offsetNumber)
	for _, n := range numbers {
		a.ifEqual(n, answer)
	}
	a.ret(allow)
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(a.prog)), Filter: (*unix.SockFilter)(unsafe.Pointer(&a.prog[0]))}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(a.prog)
	if errno != 0 {
		return errno
	}
	return nil
}

func crippledMain(what string) {
	var err error
	switch what {
	case "userns", "userns of root":
		err = os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0)
	case "landlock":
		err = takeAway(notThere, unix.SYS_LANDLOCK_CREATE_RULESET)
	case "seccomp":
		err = takeAway(errnoBase|22, unix.SYS_SECCOMP)
	case "mounts":
		err = takeAway(notThere, unix.SYS_OPEN_TREE, unix.SYS_FSOPEN)
	case "forbidden mounts":
		err = takeAway(refuse, unix.SYS_FSOPEN)
	}
	if err != nil {
		fmt.Println("preparing:", err)
		unix.Exit(1)
	}
	l, err := NewLauncher(Options{})
	if err != nil {
		fmt.Println("launcher:", err)
		unix.Exit(1)
	}
	_, err = l.Start(noContext, Policy{Mode: ReadOnly}, Command{Argv: []string{"sh", "-c", "echo it ran"}, Stdout: os.Stdout})
	var missing *UnsupportedError
	if errors.As(err, &missing) {
		fmt.Printf("%s|%s\n", missing.Missing[0].Name, missing.Missing[0].Remedy)
	} else {
		fmt.Println("start:", err)
	}
	r := Probe(noContext, Options{})
	for _, layer := range r.Layers {
		if !layer.OK {
			fmt.Printf("probe %s\n", layer.Name)
		}
	}
	l.Close()
	fmt.Println("reduced", reducedOutcome())
	unix.Exit(0)
}

// reducedOutcome is how a start at the reduced level ends here.
func reducedOutcome() string {
	l, err := NewLauncher(Options{Reduced: true})
	if err != nil {
		return err.Error()
	}
	defer l.Close()
	p, err := l.Start(noContext, Policy{Mode: ReadOnly}, Command{Argv: []string{"sh", "-c", "exit 7"}})
	var missing *UnsupportedError
	if errors.As(err, &missing) {
		return "without " + missing.Missing[0].Name
	}
	if err != nil {
		return err.Error()
	}
	res, err := p.Wait()
	return fmt.Sprint(res.ExitCode, err)
}

// sharedMain is a daemon whose mounts are shared, as systemd makes them. It hides
// and protects something in a root and tells whether its own mounts changed.
func sharedMain(ws string) {
	check := func(err error) {
		if err != nil {
			fmt.Println(err)
			unix.Exit(1)
		}
	}
	check(unix.Mount(ws, ws, "", unix.MS_BIND, ""))
	check(unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""))
	before, err := os.ReadFile("/proc/self/mountinfo")
	check(err)
	l, err := NewLauncher(Options{})
	check(err)
	p, err := l.Start(noContext, Policy{Mode: WorkspaceWrite, Roots: []string{ws}, HiddenPaths: []string{ws + "/secret"}},
		Command{Argv: []string{"cat", "secret/key"}, Stdout: os.Stdout})
	check(err)
	b, err := os.ReadFile(ws + "/secret/key")
	check(err)
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	check(err)
	res, err := p.Wait()
	check(err)
	fmt.Printf("%s, same mounts %v, exit %d\n", b, string(mounts) == string(before), res.ExitCode)
	l.Close()
	unix.Exit(0)
}

func TestMountsOfTheViewDoNotReachTheHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ws := workspace(t)
	if err := os.Mkdir(ws+"/secret", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ws+"/secret/key", []byte("SECRET"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Args = []string{sharedName, ws}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN}
	}
	out, err := cmd.Output()
	if err != nil || string(out) != "SECRET, same mounts true, exit 1\n" {
		t.Errorf("%q, %v", out, err)
	}
}

// TestMissingLayerIsNamedAndNothingRuns takes one feature at a time from a process
// in a user namespace of its own, so that the machine keeps it. The reduced level, which
// somebody must ask for, needs less, and nothing falls back to it.
func TestMissingLayerIsNamedAndNothingRuns(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ what, layer, remedy, probe, reduced string }{
		{"userns", "user namespaces", "user.max_user_namespaces", "user namespaces", "7 <nil>"},
		{"userns of root", "user namespaces", "user.max_user_namespaces", "user namespaces", "7 <nil>"},
		{"landlock", "landlock", "lsm=", "landlock", "without landlock"},
		{"seccomp", "seccomp", "CONFIG_SECCOMP_FILTER", "seccomp", "without seccomp"},
		{"mounts", "mount view", "5.15", "complete sandbox", "7 <nil>"},
		{"forbidden mounts", "private /proc", "container", "complete sandbox", "7 <nil>"},
	} {
		cmd := exec.Command(exe)
		cmd.Args = []string{crippledName, c.what}
		id := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}}
		gid := []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: id, GidMappings: gid}
		if c.what == "userns of root" {
			if os.Getuid() != 0 {
				continue // only root can be root there with other users beside it
			}
			all := []syscall.SysProcIDMap{{Size: 1 << 17}}
			cmd.SysProcAttr.GidMappingsEnableSetgroups = true
			cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = all, all
		}
		if c.what == "userns" {
			cmd.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_SYS_ADMIN}
		}
		out, err := cmd.CombinedOutput()
		first, rest, _ := strings.Cut(string(out), "\n")
		name, remedy, _ := strings.Cut(first, "|")
		if err != nil || name != c.layer || !strings.Contains(remedy, c.remedy) || !strings.Contains(rest, "probe "+c.probe+"\n") || strings.Contains(rest, "it ran") {
			t.Errorf("without %s: %q, %v; want layer %q with a remedy about %q, and probe to name %q", c.what, out, err, c.layer, c.remedy, c.probe)
		}
		if want := "reduced " + c.reduced + "\n"; landlockVersion() >= reducedLandlock && !strings.HasSuffix(rest, want) {
			t.Errorf("without %s: %q, want %q at its end", c.what, out, want)
		}
	}
}
