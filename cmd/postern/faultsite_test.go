//go:build linux

package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/quicconn"
)

// site is a relay, an executor and a client's home, each a process of its own, with forwarders
// between them that can be broken.
type site struct {
	t            *testing.T
	dir          string
	relay        *daemon
	executor     *daemon
	fromExecutor *forwarder
	fromClient   *forwarder
	relayURL     string // for the executor
	log          lockedBuffer
}

func newSite(t *testing.T, executorFlags ...string) *site {
	t.Helper()
	needSandbox(t)
	s := &site{t: t, dir: t.TempDir()}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the daemons said:\n%s", s.log.String())
		}
	})
	for _, d := range []string{"relay", "executor", "client", "work"} {
		if err := os.Mkdir(filepath.Join(s.dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(s.dir, "work"), 0o777); err != nil {
		t.Fatal(err)
	}
	address := relaytest.FreeAddress(t)
	s.relay = s.daemon("relay", "--state", s.path("relay"), "--listen", address)
	_, pin, _ := strings.Cut(s.relay.start(), "#")
	s.fromExecutor, s.fromClient = newForwarder(t, address), newForwarder(t, address)
	url := func(f *forwarder) string { return "postern://" + f.address() + "#" + pin }
	s.executor = s.daemon(append([]string{
		"executor", "--state", s.path("executor"), "--relay", url(s.fromExecutor), "--name", "box", "--workspace", s.path("work"),
	}, executorFlags...)...)
	executorKey := s.executor.start()
	s.relayURL = url(s.fromExecutor)
	clientKey := strings.TrimSpace(s.run("keygen", "--kind", "client", "--out", s.path("client/client.key")))
	s.write("relay/tenants", fmt.Sprintf("tenant t\nclient %s c\nexec %s box\n", clientKey, executorKey))
	s.write("executor/authorized_clients", clientKey+"\n")
	s.write("client/known_executors", fmt.Sprintf("box %s %s\n", executorKey, url(s.fromClient)))
	if !eventually(func() bool { return s.command("exec", "box", "--", "true").Run() == nil }) {
		t.Fatal("the executor never gets reachable")
	}
	return s
}

// impatientExecutor puts an executor in this process in the place of the one beside it. It comes back at
// once whenever its relay is gone, which a fleet of them must not.
func (s *site) impatientExecutor() {
	s.t.Helper()
	s.executor.stop()
	url, err := keys.ParseRelayURL(s.relayURL)
	if err != nil {
		s.t.Fatal(err)
	}
	n, err := openExecutor(s.t.Context(), executorOptions{
		relay: url, name: "box", state: s.path("executor"), workspaces: []string{s.path("work")},
		max: wire.SandboxWorkspaceWrite, environment: os.Environ(),
		backoff: quicconn.Backoff{Base: 50 * time.Millisecond, Settled: time.Millisecond},
		log:     slog.New(slog.NewTextHandler(&s.log, nil)),
	})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.run(ctx, nil) }()
	s.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			s.t.Error(err)
		}
		n.close()
	})
	if !eventually(func() bool { return s.command("exec", "box", "--", "true").Run() == nil }) {
		s.t.Fatal("the executor never gets reachable")
	}
}

func (s *site) path(name string) string { return filepath.Join(s.dir, name) }

// write puts a file in the place of the one before, whole.
func (s *site) write(name, content string) {
	s.t.Helper()
	draft := s.path(name) + ".draft"
	if err := os.WriteFile(draft, []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(draft, s.path(name)); err != nil {
		s.t.Fatal(err)
	}
}

// command is postern with the client's home.
func (s *site) command(args ...string) *exec.Cmd {
	cmd := exec.Command("postern", args...)
	cmd.Env = append(os.Environ(), "POSTERN_HOME="+s.path("client"), "GORACE="+raceOptions())
	return cmd
}

func (s *site) run(args ...string) string {
	s.t.Helper()
	var stderr bytes.Buffer
	cmd := s.command(args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		s.t.Fatalf("postern %s: %v: %s", args[0], err, stderr.String())
	}
	return string(out)
}

// runs is how often a command that appends to this file in the workspace has run.
func (s *site) runs(file string) int {
	s.t.Helper()
	b, err := os.ReadFile(filepath.Join(s.path("work"), file))
	if err != nil {
		s.t.Fatal(err)
	}
	return bytes.Count(b, []byte("\n"))
}

// daemon is a process that can be killed and started again.
type daemon struct {
	s     *site
	args  []string
	cmd   *exec.Cmd
	ended chan error
}

func (s *site) daemon(args ...string) *daemon {
	d := &daemon{s: s, args: args}
	s.t.Cleanup(d.stop)
	return d
}

// start returns the first line that the daemon prints.
func (d *daemon) start() string {
	d.s.t.Helper()
	line := make(chan string, 1)
	d.cmd = d.s.command(d.args...)
	d.cmd.Stdout, d.cmd.Stderr = &firstLine{Writer: io.Discard, line: line}, &d.s.log
	if err := d.cmd.Start(); err != nil {
		d.s.t.Fatal(err)
	}
	d.ended = make(chan error, 1)
	go func(cmd *exec.Cmd, ended chan<- error) { ended <- cmd.Wait() }(d.cmd, d.ended)
	select {
	case first := <-line:
		return first
	case err := <-d.ended:
		d.cmd = nil
		d.s.t.Fatalf("%s: %v", d.args[0], err)
	case <-time.After(patience):
		d.s.t.Fatalf("%s does not print its first line", d.args[0])
	}
	return ""
}

func (d *daemon) end(sig syscall.Signal) {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(sig) // its end shows whether it arrived
	<-d.ended
	d.cmd = nil
}

func (d *daemon) kill() { d.end(syscall.SIGKILL) }
func (d *daemon) stop() { d.end(syscall.SIGTERM) }

// forwarder carries datagrams to the relay, as a NAT does: each peer gets a port of its own.
type forwarder struct {
	socket *net.UDPConn
	relay  *net.UDPAddr
	drop   atomic.Bool
	tap    atomic.Pointer[func(datagram []byte)] // nil: nobody looks

	mu    sync.Mutex
	ports map[string]*net.UDPConn // by peer
	done  sync.WaitGroup
}

func newForwarder(t *testing.T, relay string) *forwarder {
	t.Helper()
	to, err := net.ResolveUDPAddr("udp", relay)
	if err != nil {
		t.Fatal(err)
	}
	socket, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.SetReadBuffer(4 << 20) // more is better, nothing depends on it
	f := &forwarder{socket: socket, relay: to, ports: make(map[string]*net.UDPConn)}
	f.done.Go(f.forward)
	t.Cleanup(func() {
		socket.Close()
		f.rebind()
		f.done.Wait()
	})
	return f
}

func (f *forwarder) address() string { return f.socket.LocalAddr().String() }

func (f *forwarder) forward() {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := f.socket.ReadFromUDP(buf)
		if err != nil {
			return
		}
		f.show(buf[:n])
		if port := f.port(from); port != nil && !f.drop.Load() {
			_, _ = port.Write(buf[:n]) // a lost datagram is one that the network lost
		}
	}
}

// port is where the relay sees this peer.
func (f *forwarder) port(peer *net.UDPAddr) *net.UDPConn {
	f.mu.Lock()
	defer f.mu.Unlock()
	port := f.ports[peer.String()]
	if port == nil {
		var err error
		if port, err = net.DialUDP("udp", nil, f.relay); err != nil {
			return nil
		}
		f.ports[peer.String()] = port
		f.done.Go(func() {
			buf := make([]byte, 1<<16)
			for {
				n, err := port.Read(buf)
				f.show(buf[:n])
				switch {
				case err == nil && !f.drop.Load():
					_, _ = f.socket.WriteToUDP(buf[:n], peer) // the same
				case err != nil && !strings.Contains(err.Error(), "refused"): // nobody listens at the moment
					return
				}
			}
		})
	}
	return port
}

func (f *forwarder) show(datagram []byte) {
	if tap := f.tap.Load(); tap != nil {
		(*tap)(datagram)
	}
}

// rebind gives every peer another port, as a NAT does that has forgotten them.
func (f *forwarder) rebind() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for peer, port := range f.ports {
		port.Close()
		delete(f.ports, peer)
	}
}

// echo is an exec to which numbered lines go and from which they must come back, each once and in order.
type echo struct {
	t      *testing.T
	cmd    *exec.Cmd
	stderr lockedBuffer
	sent   atomic.Int64
	stop   chan struct{}
	fed    sync.WaitGroup

	mu       sync.Mutex
	received int64
	broken   string
	ended    bool
	progress chan struct{}
}

// echo starts one with cat behind it.
func (s *site) echo(args ...string) *echo {
	s.t.Helper()
	return startEcho(s.t, s.command(args...))
}

func startEcho(t *testing.T, cmd *exec.Cmd) *echo {
	t.Helper()
	e := &echo{t: t, cmd: cmd, stop: make(chan struct{}), progress: make(chan struct{})}
	in, err := e.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	e.cmd.Stderr = &e.stderr
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	e.fed.Go(func() { e.feed(in) })
	go e.check(out)
	t.Cleanup(func() {
		_ = e.cmd.Process.Kill() // it has ended, unless the test failed
		e.finish()
	})
	return e
}

// feed writes lines at an even pace, so that there is something under way at every moment.
func (e *echo) feed(in io.WriteCloser) {
	defer in.Close()
	pace := time.NewTicker(2 * time.Millisecond)
	defer pace.Stop()
	for {
		select {
		case <-pace.C:
		case <-e.stop:
			return
		}
		var lines bytes.Buffer
		for range 20 {
			fmt.Fprintf(&lines, "%012d\n", e.sent.Load())
			e.sent.Add(1)
		}
		if _, err := in.Write(lines.Bytes()); err != nil {
			return
		}
	}
}

func (e *echo) check(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		e.mu.Lock()
		if want := fmt.Sprintf("%012d", e.received); lines.Text() != want && e.broken == "" {
			e.broken = fmt.Sprintf("line %q comes back where %q should", lines.Text(), want)
		}
		e.received++
		close(e.progress)
		e.progress = make(chan struct{})
		e.mu.Unlock()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	close(e.progress)
}

// await waits until everything that was sent so far has come back.
func (e *echo) await() {
	e.t.Helper()
	target := e.sent.Load() + 1
	limit := time.NewTimer(2 * patience)
	defer limit.Stop()
	for {
		e.mu.Lock()
		received, ended, broken, progress := e.received, e.ended, e.broken, e.progress
		e.mu.Unlock()
		switch {
		case broken != "":
			e.t.Fatal(broken)
		case received >= target:
			return
		case ended:
			e.t.Fatalf("it ended after %d lines, %d were sent:\n%s", received, target, e.stderr.String())
		}
		select {
		case <-progress:
		case <-limit.C:
			e.t.Fatalf("nothing comes back any more after %d lines, %d were sent:\n%s", received, target, e.stderr.String())
		}
	}
}

// finish ends the input; the second call does nothing.
func (e *echo) finish() {
	select {
	case <-e.stop:
	default:
		close(e.stop)
	}
	e.fed.Wait()
}

// end ends the input, waits for the end of the command, and checks that all of it came back.
func (e *echo) end() {
	e.t.Helper()
	e.finish()
	for {
		e.mu.Lock()
		ended, progress := e.ended, e.progress
		e.mu.Unlock()
		if ended {
			break
		}
		select {
		case <-progress:
		case <-time.After(2 * patience):
			e.t.Fatalf("it does not end:\n%s", e.stderr.String())
		}
	}
	if err := e.cmd.Wait(); err != nil {
		e.t.Errorf("it ended with %v:\n%s", err, e.stderr.String())
	}
	if e.broken != "" || e.received != e.sent.Load() {
		e.t.Errorf("%d lines came back, %d were sent: %s", e.received, e.sent.Load(), e.broken)
	}
}
