package sandbox

import (
	"bufio"
	"errors"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/postern-relay/postern/sandbox/egress"
)

// served is a command that serves on its own loopback until its test ends.
func served(t *testing.T, l *Launcher, p Policy) (address string) {
	t.Helper()
	_, file := probe(t)
	out, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	proc, err := l.Start(noContext, p, Command{Argv: []string{file, "serve", "@" + t.Name()}, Arg0: probeName, Stdout: theirs})
	theirs.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proc.Kill()
		<-proc.Done()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	port, ok := strings.CutPrefix(strings.TrimSpace(line), "port ")
	if !ok {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return "127.0.0.1:" + port
}

// dialled is what the command's attempt to reach an address comes to.
func dialled(t *testing.T, l *Launcher, p Policy, address string) string {
	t.Helper()
	_, file := probe(t)
	out, err := runCommand(t, l, p, Command{Argv: []string{file, "dial", "tcp", address}, Arg0: probeName})
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(out.stdout)
}

func probing(t *testing.T, n Network) Policy {
	root, _ := probe(t)
	return Policy{Mode: ReadOnly, Roots: []string{root}, Network: n}
}

func TestHostNetworkIsTheMachines(t *testing.T) {
	if landlockVersion() < scopedLandlock {
		t.Skip("the kernel has no Landlock scopes")
	}
	l := newLauncher(t, Options{})
	service, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	for _, c := range []struct {
		network Network
		want    string
	}{
		{Network{}, "ECONNREFUSED"},
		{Network{Mode: NetworkProxy}, "ECONNREFUSED"},
		{Network{Mode: NetworkHost}, "OK"},
		{Network{Session: "a"}, "ECONNREFUSED"},
	} {
		for range 2 { // cold and, as far as there is one, made ahead
			if got := dialled(t, l, probing(t, c.network), service.Addr().String()); got != c.want {
				t.Errorf("%+v: a service of the machine: %s, want %s", c.network, got, c.want)
			}
		}
	}
	text, err := os.ReadFile(resolverFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if out := runShell(t, l, probing(t, Network{Mode: NetworkHost}), "cat /etc/resolv.conf"); out.stdout != string(text) {
		t.Errorf("the resolver's file in the machine's network is %q, want %q", out.stdout, text)
	}
}

func TestNobodyIsAskedForNamesWithoutANetwork(t *testing.T) {
	if _, err := os.Stat(resolverFile); err != nil {
		t.Skip("the machine has no " + resolverFile)
	}
	l := newLauncher(t, Options{})
	for _, n := range []Network{{}, {Mode: NetworkProxy}, {Session: "s"}} {
		if out := runShell(t, l, probing(t, n), "cat /etc/resolv.conf"); out.stdout != noNameServer {
			t.Errorf("%+v: the resolver's file is %q", n, out.stdout)
		}
	}
}

// The daemon accepts what the command dials inside, and nobody else is there.
func TestListenerIsInTheCommandsNetworkAndEndsWithIt(t *testing.T) {
	l := newLauncher(t, Options{})
	_, file := probe(t)
	for _, made := range []string{"cold", "made ahead"} {
		proc, err := l.Start(noContext, probing(t, Network{Mode: NetworkProxy}), Command{Argv: []string{file, "dial-held", "tcp", ProxyAddress}, Arg0: probeName})
		if err != nil {
			t.Fatal(err)
		}
		listener, err := egress.FileListener(proc.Listener())
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		c, err := listener.Accept()
		if err != nil {
			t.Fatalf("%s: accept: %v", made, err)
		}
		c.Close()
		if r, err := proc.Wait(); err != nil || r.ExitCode != 0 {
			t.Errorf("%s: the command ended with %+v, %v", made, r, err)
		}
		if c, err := listener.Accept(); err == nil {
			c.Close()
			t.Errorf("%s: accepted after the end", made)
		}
		<-proc.gone // which is after the socket is closed
		if _, err := proc.Listener().Stat(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("%s: the socket after the end: %v, want that it is closed", made, err)
		}
	}
	proc, err := l.Start(noContext, probing(t, Network{}), Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if proc.Listener() != nil {
		t.Error("a command without a network has a listener")
	}
	_, _ = proc.Wait()
}

func TestCommandsOfASessionShareANetworkAndNothingElse(t *testing.T) {
	l := newLauncher(t, Options{})
	one := probing(t, Network{Session: "one"})
	address := served(t, l, one)
	for range 3 {
		if got := dialled(t, l, one, address); got != "OK" {
			t.Errorf("a server of the same session: %s", got)
		}
	}
	for _, n := range []Network{{}, {Session: "two"}, {Session: "one", Mode: NetworkProxy}} {
		if got := dialled(t, l, probing(t, n), address); got != "ECONNREFUSED" {
			t.Errorf("%+v: a server of another session: %s", n, got)
		}
	}
	const look = `readlink /proc/self/ns/net /proc/self/ns/user; grep Cap /proc/self/status; echo $(ls -d /proc/[0-9]* | wc -l)`
	out, again := runShell(t, l, one, look+"; touch /tmp/x ~/x; kill -9 -1"), runShell(t, l, one, look+"; ls ~")
	place := func(o outcome) string { return o.stdout[:strings.LastIndex(o.stdout, "0000000000000000")] }
	if place(out) != place(again) || strings.Count(out.stdout, "0000000000000000") != 5 {
		t.Errorf("two commands of a session:\n%s%swant one place and no capabilities", out.stdout, again.stdout)
	}
	for _, o := range []outcome{out, again} { // init, the shell, and what it runs
		left := strings.Fields(o.stdout[len(place(o)):]) // the last of the capabilities, and the number of processes
		if len(left) != 2 || left[1] != "2" && left[1] != "3" && left[1] != "4" && left[1] != "5" {
			t.Errorf("a command of a session sees files or processes of another: %q", left)
		}
	}
	if got := dialled(t, l, one, address); got != "OK" {
		t.Errorf("the server after another command has killed all that it could: %s", got)
	}
}

func TestListenerOfASessionIsTheSameForAllItsCommands(t *testing.T) {
	l := newLauncher(t, Options{})
	p := probing(t, Network{Mode: NetworkProxy, Session: "s"})
	_, file := probe(t)
	var first *os.File
	var listener net.Listener
	for range 3 {
		proc, err := l.Start(noContext, p, Command{Argv: []string{file, "dial", "tcp", ProxyAddress}, Arg0: probeName})
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = proc.Listener()
			if listener, err = egress.FileListener(first); err != nil {
				t.Fatal(err)
			}
			defer listener.Close()
		}
		if proc.Listener() != first {
			t.Error("another listener for a command of the same session")
		}
		c, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if r, err := proc.Wait(); err != nil || r.ExitCode != 0 {
			t.Errorf("ended with %+v, %v", r, err)
		}
	}
	l.Close()
	if c, err := listener.Accept(); err == nil {
		c.Close()
		t.Error("accepted after the launcher's end")
	}
}

// Whoever joins a session whose spawner has died gets a new one, and so does everybody after.
func TestSessionWhoseSpawnerDiedBeginsAnew(t *testing.T) {
	l := newLauncher(t, Options{})
	p := probing(t, Network{Session: "s"})
	address := served(t, l, p)
	l.sessions.mu.Lock()
	n := l.sessions.byName[p.Network]
	l.sessions.mu.Unlock()
	if err := unix.PidfdSendSignal(n.pidfd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	fds := []unix.PollFd{{Fd: int32(n.pidfd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil {
		t.Fatal(err)
	}
	if got := dialled(t, l, p, address); got != "ECONNREFUSED" {
		t.Errorf("a server of the session before: %s", got)
	}
	if got := dialled(t, l, p, served(t, l, p)); got != "OK" {
		t.Errorf("a server of the new session: %s", got)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	for n := range maxSessions {
		l.sessions.mu.Lock()
		if l.sessions.byName == nil {
			l.sessions.byName = make(map[Network]*netSession)
		}
		network := Network{Session: "s", Owner: strings.Repeat("x", n+1)}
		l.sessions.byName[network] = &netSession{all: &l.sessions, network: network, users: 1}
		l.sessions.mu.Unlock()
	}
	_, err := l.Start(noContext, probing(t, Network{Session: "one more"}), Command{Argv: []string{"true"}})
	if !errors.Is(err, errSessions) {
		t.Errorf("one session too many: %v, want %v", err, errSessions)
	}
}

// Why a session cannot begin is said as of any other sandbox.
func TestErrorOfASessionIsOneOfTheSandbox(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	l.sessions.close()
	for _, inner := range []error{&SetupError{Stage: "spawner", Err: unix.EMFILE}, &UnsupportedError{Missing: []Layer{{Name: "user namespaces"}}}} {
		if got := explain(fail("session", "", inner)); got != inner {
			t.Errorf("%q is told as %q", inner, got)
		}
	}
	var failed *SetupError
	if _, err := l.Start(noContext, probing(t, Network{Session: "s"}), Command{Argv: []string{"true"}}); !errors.As(err, &failed) || !errors.Is(err, ErrClosed) {
		t.Errorf("without sessions: %v", err)
	}
}

// One owner's sessions, in use or not, are no reason to refuse another's; and what is idle is no reason to refuse anything.
func TestOwnerOfManySessionsLeavesRoomForOthers(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	session := func(owner string, n int) Policy {
		return probing(t, Network{Session: strings.Repeat("x", n+1), Owner: owner})
	}
	for n := range sessionsPerOwner {
		runShell(t, l, session("greedy", n), "true")
	}
	there := func(p Policy) bool {
		l.sessions.mu.Lock()
		defer l.sessions.mu.Unlock()
		return l.sessions.byName[p.Network] != nil
	}
	runShell(t, l, session("greedy", 0), "true") // the next one is the longest idle
	runShell(t, l, session("greedy", sessionsPerOwner), "true")
	for n, want := range map[int]bool{0: true, 1: false, 2: true, sessionsPerOwner: true} {
		if got := there(session("greedy", n)); got != want {
			t.Errorf("session %d is there: %v, want %v", n, got, want)
		}
	}
	l.sessions.mu.Lock()
	for _, n := range l.sessions.byName {
		n.users++ // as if a command ran in each
	}
	l.sessions.mu.Unlock()
	if _, err := l.Start(noContext, session("greedy", 1), Command{Argv: []string{"true"}}); !errors.Is(err, errSessions) {
		t.Errorf("one more of somebody who uses %d: %v, want %v", sessionsPerOwner, err, errSessions)
	}
	runShell(t, l, session("other", 0), "true")
	l.sessions.mu.Lock()
	for _, n := range l.sessions.byName {
		n.users--
	}
	l.sessions.mu.Unlock()
}

func TestUnknownNetworkIsRefused(t *testing.T) {
	l := newLauncher(t, Options{})
	for _, n := range []Network{{Mode: -1}, {Mode: NetworkHost + 1}, {Mode: NetworkHost, Session: "s"}, {Owner: "a"}} {
		var failed *SetupError
		if _, err := l.Start(noContext, probing(t, n), Command{Argv: []string{"true"}}); !errors.As(err, &failed) || failed.Stage != "policy" {
			t.Errorf("%+v: %v, want a refusal of the policy", n, err)
		}
	}
}

// A command that was to have a proxy does not run without one, and what came in place of the listener is closed once.
func TestCommandWhoseListenerIsNoneDoesNotStart(t *testing.T) {
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	child := exec.Command("sleep", "1000")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(child.Process.Pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctl, err := newControl(pair[0])
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(l, child.Process.Pid, pidfd, ctl, &plan{setup: setup{network: Network{Mode: NetworkProxy}}})
	go p.listen()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := sendMessage(pair[1], 0, msgListener, nil, int(null.Fd())); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()    // it is killed
	unix.Close(pair[1]) // which an init's end does
	var failed *SetupError
	if err := <-p.started; !errors.As(err, &failed) || failed.Stage != "proxy listener" {
		t.Errorf("started with %v, want that the listener is none", err)
	}
	<-p.gone
}
