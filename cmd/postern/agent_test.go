//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/client/agent"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// runningAgent is an agent on a socket of its own.
type runningAgent struct {
	*agent.Server
	path string
	stop func()
}

func newRunningAgent(t *testing.T, it registered) *runningAgent {
	t.Helper()
	dir, err := os.MkdirTemp("", "agent") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	a := &runningAgent{path: filepath.Join(dir, agentSocket)}
	a.Server = agent.NewServer(agent.Config{Key: it.client.Public(), Software: "test", Open: func(relay keys.RelayURL) (*client.Client, error) {
		return client.New(client.Config{Key: it.client, Relay: relay})
	}})
	l, err := net.Listen("unix", a.path)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { _ = a.Serve(l) })
	a.stop = sync.OnceFunc(func() {
		l.Close()
		a.Server.Close()
		serving.Wait()
	})
	t.Cleanup(a.stop)
	return a
}

// through is a client that uses the agent.
func (a *runningAgent) through(t *testing.T, it registered) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Key: it.client, Relay: it.url, Agent: agent.New(a.path, "test", it.client.Public(), it.url)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// throughAgent connects them through an agent, and fails where the client connects by itself.
func throughAgent(t *testing.T, b *executor.Local) *client.Remote {
	t.Helper()
	it := newRegistered(t, b)
	a := newRunningAgent(t, it)
	c, err := client.New(client.Config{
		Key: it.client, Relay: it.url, Agent: agent.New(a.path, "test", it.client.Public(), it.url),
		Connect: func(context.Context) (wire.Transport, error) { return nil, errors.New("this client has an agent") },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c.Executor(it.executor)
}

// echoed runs a command that says a word.
func echoed(t *testing.T, r wire.ExecBackend, word string) {
	t.Helper()
	cmd := client.Environment{Name: "it", Backend: r}.Command("echo", word)
	out, err := cmd.Output(t.Context())
	if err != nil || string(out) != word+"\n" {
		t.Fatalf("echo %s: %q, %v", word, out, err)
	}
}

func TestClientWhoseAgentIsGoneConnectsByItself(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	it := newRegistered(t, b)
	a := newRunningAgent(t, it)
	c := a.through(t, it)
	echoed(t, c.Executor(it.executor), "one")
	a.stop()
	echoed(t, c.Executor(it.executor), "two")
	echoed(t, a.through(t, it).Executor(it.executor), "three")
}

// A command that runs when the agent is killed goes on, and not a byte is lost.
func TestCommandOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	it := newRegistered(t, b)
	a := newRunningAgent(t, it)
	r := a.through(t, it).Executor(it.executor)
	p, err := r.Start(t.Context(), wire.ExecParams{Argv: []string{"sh", "-c", "echo before; read word; echo $word after"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var printed strings.Builder
	for e, err := range p.Events(t.Context(), 0) {
		if err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if e.Chunk != nil {
			printed.Write(e.Chunk.Data)
			if strings.HasPrefix(printed.String(), "before") && !strings.Contains(printed.String(), "after") {
				a.stop()
				if err := p.Write(t.Context(), 0, []byte("well\n")); err != nil {
					t.Fatal(err)
				}
			}
		}
		if e.Exit != nil {
			if printed.String() != "before\nwell after\n" || !e.Exit.Success() {
				t.Errorf("printed %q, ended %v", printed.String(), e.Exit)
			}
			return
		}
	}
}

// What the executor has forgotten is not lent again.
func TestAgentFoundsAnewWhatTheExecutorHasForgotten(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	it := newRegistered(t, b)
	a := newRunningAgent(t, it)
	way := agent.New(a.path, "test", it.client.Public(), it.url)
	one, err := way.Borrow(t.Context(), it.executor, wire.ID{})
	if err != nil {
		t.Fatal(err)
	}
	two, err := way.Borrow(t.Context(), it.executor, wire.ID{})
	if err != nil || two.ID != one.ID || two.First <= one.Last {
		t.Errorf("the second loan is %+v, %v, want other numbers of the session of %+v", two, err, one)
	}
	three, err := way.Borrow(t.Context(), it.executor, one.ID)
	if err != nil || three.ID == one.ID {
		t.Errorf("after the session was found to be forgotten: %+v, %v", three, err)
	}
	it.relay.Restart()
	again := client.Environment{Name: "it", Backend: a.through(t, it).Executor(it.executor)}
	if !eventually(func() bool { // the executor has to be back at the relay first
		out, err := again.Command("echo", "again").Output(t.Context())
		return err == nil && string(out) == "again\n"
	}) {
		t.Error("no command runs through the agent after a restart of the relay")
	}
}

func TestAgentRefusesWhoeverIsNotItsUsersProgram(t *testing.T) {
	t.Parallel()
	b, _ := newBackend(t)
	it := newRegistered(t, b)
	for _, c := range []struct {
		name string
		way  func(path string) *agent.Agent
	}{
		{"another build", func(path string) *agent.Agent { return agent.New(path, "other", it.client.Public(), it.url) }},
		{"another key", func(path string) *agent.Agent {
			return agent.New(path, "test", newKey(t, keys.Client).Public(), it.url)
		}},
	} {
		a := newRunningAgent(t, it)
		if _, err := c.way(a.path).Borrow(t.Context(), it.executor, wire.ID{}); err == nil || !strings.Contains(err.Error(), "another key, or is of another build") {
			t.Errorf("%s: %v", c.name, err)
		}
		select {
		case <-a.Retired():
		case <-t.Context().Done():
			t.Fatalf("%s: the agent goes on", c.name)
		}
	}
	a := newRunningAgent(t, it)
	way := agent.New(a.path, "test", it.client.Public(), it.url)
	for _, key := range []keys.PublicKey{it.client.Public(), it.url.Key} {
		if _, err := way.Borrow(t.Context(), key, wire.ID{}); err == nil {
			t.Errorf("a session with %v is lent", key)
		}
	}
	for _, garbage := range []string{"", "x", "\xff\xff\xff\xff", "\x00\x00\x00\x01\xff", strings.Repeat("a", 1<<20)} {
		conn, err := net.Dial("unix", a.path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(patience))
		_, _ = io.WriteString(conn, garbage)
		_ = conn.(*net.UnixConn).CloseWrite()
		if got, err := io.ReadAll(conn); len(got) > 0 {
			t.Errorf("%.10q is answered with %q, %v", garbage, got, err)
		}
		conn.Close()
	}
	echoed(t, a.through(t, it).Executor(it.executor), "still")
}
