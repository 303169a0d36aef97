package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/keys"
)

// inNamespaces says, in a child of the test's, which test may change its namespaces.
const inNamespaces = "POSTERN_TEST_IN_NAMESPACES"

// withNamespaces runs the rest of the test in a child that is root in namespaces of its own, where
// it may break the network or the kernel's limits without anybody else noticing. It returns
// true in the child; the parent returns false, with the child's verdict as its own.
func withNamespaces(t *testing.T, flags uintptr) bool {
	t.Helper()
	return inChild(t, &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | flags,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	})
}

// inChild is withNamespaces for a child with these attributes.
func inChild(t *testing.T, attributes *syscall.SysProcAttr) bool {
	t.Helper()
	if os.Getenv(inNamespaces) == t.Name() {
		return true
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v", "-test.count=1")
	child.Env = append(os.Environ(), inNamespaces+"="+t.Name(), "GORACE="+raceOptions())
	child.SysProcAttr = attributes
	out, err := child.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); err != nil && !ended {
		t.Skipf("needs user namespaces: %v", err)
	}
	if reason := regexp.MustCompile(`(?m)^ +\S+\.go:\d+: (needs .*)$`).FindSubmatch(out); reason != nil && strings.Contains(string(out), "--- SKIP: "+t.Name()) {
		t.Skipf("%s", reason[1])
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("in namespaces of its own: %v\n%s", err, out)
	}
	for _, survived := range regexp.MustCompile(`survived: .*`).FindAll(out, -1) {
		t.Logf("%s", survived)
	}
	return false
}

// runPostern is a run that ends by itself: its exit code and its output.
func runPostern(t *testing.T, environ []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := postern(t, args...)
	cmd.Env = append(cmd.Env, environ...)
	var out, log strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &log
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode(), out.String(), log.String()
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, out.String(), log.String()
}

// wantFailure wants the code, an empty stdout, and one line of postern's that has all the texts.
func wantFailure(t *testing.T, want int, texts []string, environ []string, args ...string) {
	t.Helper()
	code, stdout, stderr := runPostern(t, environ, args...)
	missing := slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(stderr, s) })
	if code != want || stdout != "" || missing || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "postern: ") {
		t.Errorf("postern %s: exit code %d, stdout %q, stderr %q; want code %d, nothing and one line with %q",
			strings.Join(args, " "), code, stdout, stderr, want, texts)
	}
}

// clientHome is a client's folder that knows one executor, dev, at a relay that nobody runs.
func clientHome(t *testing.T, address string) string {
	t.Helper()
	url := fmt.Sprintf("postern://%s#%s", address, newKey(t, keys.Relay).Public())
	return writeHome(t, newKey(t, keys.Client), newKey(t, keys.Executor).Public(), url)
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs the ip command")
	}
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// A network that carries no UDP shows itself in one of several ways; each is one line that
// names the address, and a command is never reported as started.
func TestBlockedUDPIsReportedInOneLine(t *testing.T) {
	t.Parallel()
	if !withNamespaces(t, syscall.CLONE_NEWNET) {
		return
	}
	t.Run("loopback is down", func(t *testing.T) {
		home := clientHome(t, "127.0.0.1:4433")
		wantFailure(t, exitRefused, []string{"dev: ", "127.0.0.1:4433", "cannot send there over UDP"}, []string{"POSTERN_HOME=" + home}, "exec", "dev", "--", "true")
	})
	ip(t, "link", "set", "lo", "up")
	for _, kind := range []string{"unreachable", "prohibit", "blackhole"} {
		t.Run(kind+" route", func(t *testing.T) {
			ip(t, "route", "replace", kind, "192.0.2.0/24")
			home := clientHome(t, "192.0.2.1:4433")
			wantFailure(t, exitRefused, []string{"dev: ", "192.0.2.1:4433", "cannot send there over UDP"}, []string{"POSTERN_HOME=" + home}, "exec", "dev", "--", "true")
		})
	}
	t.Run("nothing comes back", func(t *testing.T) {
		silent, err := net.ListenPacket("udp", "127.0.0.1:0") // as behind a firewall that drops
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		home := clientHome(t, silent.LocalAddr().String())
		wantFailure(t, exitRefused, []string{silent.LocalAddr().String(), "UDP"}, []string{"POSTERN_HOME=" + home}, "exec", "dev", "--", "true")
	})
}

func TestCommandsAreRefusedWhereTheSandboxCannotBeMade(t *testing.T) {
	t.Parallel()
	if !withNamespaces(t, syscall.CLONE_NEWNS|syscall.CLONE_NEWNET) {
		return
	}
	ip(t, "link", "set", "lo", "up")
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Skipf("needs /proc/sys/user/max_user_namespaces to be writable: %v", err)
	}
	wantFailure(t, exitRefused, []string{"this machine cannot run the sandbox", "user namespace"}, nil, "demo", "--", "true")
	wantFailure(t, exitRefused, []string{"this machine cannot run the sandbox"}, nil, "demo")
	d := startDevWithoutSandbox(t)
	wantFailure(t, exitRefused, []string{"dev: ", "sandbox"}, d.environ, "exec", "dev", "--", "true")
}

func TestFullStateFolderIsReportedAndLeavesNoHalfKey(t *testing.T) {
	t.Parallel()
	if !withNamespaces(t, syscall.CLONE_NEWNS) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k,nr_inodes=16"); err != nil {
		t.Skipf("needs tmpfs mounts in a user namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // so that the folder can be removed
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"keygen", "--kind", "client", "--out", filepath.Join(dir, "client.key")},
		{"relay", "--listen", "127.0.0.1:0", "--state", filepath.Join(dir, "relay")},
		{"dev", "--state", filepath.Join(dir, "dev")},
	} {
		wantFailure(t, exitFailed, []string{".key", "no space left on device"}, nil, args...)
	}
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err == nil && strings.Contains(filepath.Base(path), ".key") {
			t.Errorf("%s is left behind", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func TestReadOnlyStateFolderIsReported(t *testing.T) {
	t.Parallel()
	if !withNamespaces(t, syscall.CLONE_NEWNS) {
		return
	}
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_RDONLY, "size=4k"); err != nil {
		t.Skipf("needs tmpfs mounts in a user namespace: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // so that the folder can be removed
	for _, args := range [][]string{
		{"keygen", "--kind", "client", "--out", filepath.Join(dir, "client.key")},
		{"relay", "--listen", "127.0.0.1:0", "--state", dir},
		{"relay", "--listen", "127.0.0.1:0", "--state", filepath.Join(dir, "new")},
		{"dev", "--state", filepath.Join(dir, "dev")},
	} {
		wantFailure(t, exitFailed, []string{dir, "read-only file system"}, nil, args...)
	}
}
