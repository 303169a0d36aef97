package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/keys"
)

// The executor and the client are behind a NAT that masquerades, and whose own address changes: the
// kernel forgets every mapping, and the relay sees both of them come from somewhere else.
func TestExecSurvivesANATThatForgets(t *testing.T) {
	for _, program := range []string{"nft", "nsenter", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs the %s command", program)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("needs root: for an executor in a network namespace with a sandbox")
	}
	if !inChild(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET}) {
		return
	}
	inside, outside := newNetns(t), newNetns(t)
	inside.link("in", "10.77.1.1/24", "10.77.1.2/24")
	outside.link("out", "10.77.2.1/24", "10.77.2.2/24")
	inside.run("ip", "route", "add", "default", "via", "10.77.1.1")
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644); err != nil {
		t.Skipf("needs a network namespace that forwards: %v", err)
	}
	for _, rule := range []string{
		"add table ip nat", "add chain ip nat post { type nat hook postrouting priority 100; }",
		"add rule ip nat post oifname out masquerade",
	} {
		if out, err := exec.Command("nft", rule).CombinedOutput(); err != nil {
			t.Skipf("needs a kernel that masquerades for namespaces: %v: %s", err, out)
		}
	}

	dir := t.TempDir()
	relayKey, executorKey, clientKey := newKey(t, keys.Relay), newKey(t, keys.Executor), newKey(t, keys.Client)
	url := "postern://10.77.2.2:4433#" + relayKey.Public().String()
	home := writeHome(t, clientKey, executorKey.Public(), url)
	for _, d := range []string{"relay", "executor", "jobs"} {
		if err := os.Mkdir(dir+"/"+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(dir+"/jobs", 0o777); err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{
		"relay/tenants":               fmt.Sprintf("tenant t\nclient %s c\nexec %s dev\n", clientKey.Public(), executorKey.Public()),
		"executor/authorized_clients": clientKey.Public().String() + "\n",
	} {
		if err := os.WriteFile(dir+"/"+path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for path, key := range map[string]*keys.PrivateKey{"relay/relay.key": relayKey, "executor/executor.key": executorKey} {
		if err := keys.WriteFile(dir+"/"+path, key); err != nil {
			t.Fatal(err)
		}
	}
	outside.serve("relay", "--state", dir+"/relay", "--listen", "10.77.2.2:4433")
	inside.serve("executor", "--state", dir+"/executor", "--relay", url, "--name", "dev", "--workspace", dir+"/jobs")
	client := func(args ...string) *exec.Cmd {
		cmd := inside.command("postern", args...)
		cmd.Env = append(cmd.Env, "POSTERN_HOME="+home)
		return cmd
	}
	var said []byte
	if !eventually(func() bool {
		var err error
		said, err = client("exec", "dev", "--", "true").CombinedOutput()
		return err == nil
	}) {
		t.Fatalf("the executor never gets reachable: %s", said)
	}
	e := startEcho(t, client("exec", "-i", "dev", "--", "sh", "-c", "echo run >> runs; exec cat"))
	e.await()
	changes := faults(1, 5)
	for n := range changes {
		ip(t, "addr", "del", fmt.Sprintf("10.77.2.%d/24", natAddress(n)), "dev", "out")
		ip(t, "addr", "add", fmt.Sprintf("10.77.2.%d/24", natAddress(n+1)), "dev", "out")
		e.await()
	}
	e.end()
	if b, err := os.ReadFile(dir + "/jobs/runs"); err != nil || string(b) != "run\n" {
		t.Errorf("the command ran %d times, %v", strings.Count(string(b), "\n"), err)
	}
	t.Logf("survived: %d new addresses of the NAT; %d lines each way, none lost, doubled or moved", changes, e.sent.Load())
}

// natAddress is the NAT's nth address.
func natAddress(n int) int {
	if n == 0 {
		return 1
	}
	return 10 + n
}

// netns is a network namespace, held by a process that does nothing.
type netns struct {
	t   *testing.T
	pid int
}

func newNetns(t *testing.T) *netns {
	t.Helper()
	holder := exec.Command("sleep", "600")
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := holder.Start(); err != nil {
		t.Skipf("needs network namespaces: %v", err)
	}
	t.Cleanup(func() {
		_ = holder.Process.Kill() // it cannot have ended
		_ = holder.Wait()
	})
	return &netns{t, holder.Process.Pid}
}

// link connects the namespace with this one: a device of this name here, and eth0 there.
func (n *netns) link(name, here, there string) {
	n.t.Helper()
	ip(n.t, "link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(n.pid))
	ip(n.t, "addr", "add", here, "dev", name)
	ip(n.t, "link", "set", name, "up")
	for _, args := range [][]string{{"addr", "add", there, "dev", "eth0"}, {"link", "set", "eth0", "up"}, {"link", "set", "lo", "up"}} {
		n.run("ip", args...)
	}
}

func (n *netns) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(n.pid), "-n", name}, args...)...)
	cmd.Env = append(os.Environ(), "GORACE="+raceOptions())
	return cmd
}

func (n *netns) run(name string, args ...string) {
	n.t.Helper()
	if out, err := n.command(name, args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}

// serve runs a daemon until the test ends.
func (n *netns) serve(args ...string) {
	n.t.Helper()
	line := make(chan string, 1)
	var log lockedBuffer
	cmd := n.command("postern", args...)
	cmd.Stdout, cmd.Stderr = &firstLine{Writer: io.Discard, line: line}, &log
	if err := cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	n.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // its end shows whether it arrived
		<-ended
		if n.t.Failed() {
			n.t.Logf("%s said:\n%s", args[0], log.String())
		}
	})
	select {
	case <-line:
	case <-time.After(patience):
		n.t.Fatalf("%s does not print its first line:\n%s", args[0], log.String())
	}
}
