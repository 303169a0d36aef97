package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/client/agent"
	"github.com/postern-relay/postern/keys"
)

// The agent's files in a client's folder. The lock tells that there is one: a socket stays behind when its process is killed.
const (
	agentSocket = "agent.sock"
	agentDraft  = "agent.new" // the socket before it may be used; no longer than its name
	agentLock   = "agent.lock"
)

// longestSocket is what fits into sockaddr_un with its zero byte (unix(7)).
const longestSocket = 107

// agentOptions are the flags of `postern agent`.
type agentOptions struct {
	idle time.Duration
	warm string
	log  *slog.Logger
}

// wantsAgent reports whether agents are in use at all.
func (h home) wantsAgent() bool {
	return runtime.GOOS == "linux" && os.Getenv("POSTERN_AGENT") != "off" && len(h.join(agentSocket)) <= longestSocket
}

// runAgent serves until there is a reason to end, which is no error.
func (h home) runAgent(ctx context.Context, o agentOptions) error {
	if !h.wantsAgent() {
		return errors.New("no agent: POSTERN_AGENT is off, the folder's name is too long for a socket, or this is not Linux")
	}
	key, err := keys.ReadFile(h.join(keyFile), keys.Client)
	if err != nil {
		return err
	}
	lock, err := os.OpenFile(h.join(agentLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if lockFile(lock) != nil {
		return nil // there is one already
	}
	l, err := h.listenAgent()
	if err != nil {
		return err
	}
	s := agent.NewServer(agent.Config{
		Key: key.Public(), Software: agentSoftware(), Log: o.log,
		Open: func(relay keys.RelayURL) (*client.Client, error) { return h.open(relay) },
	})
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Serve(l) })
	defer serving.Wait()
	defer s.Close()
	defer l.Close()
	if o.warm != "" {
		serving.Go(func() { h.warm(ctx, s, o) })
	}
	h.watchAgent(ctx, s, l, o)
	return nil
}

// listenAgent makes the socket, which nobody but its user may use from its first moment on: it gets its name when it has its mode.
func (h home) listenAgent() (*net.UnixListener, error) {
	draft := h.join(agentDraft)
	if err := os.Remove(draft); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: draft, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // it may be a successor's by then
	err = os.Chmod(draft, 0o600)
	if err == nil {
		err = os.Rename(draft, h.join(agentSocket))
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// watchAgent returns when the agent is to end: asked to, idle, retired, or without its socket or its lock.
func (h home) watchAgent(ctx context.Context, s *agent.Server, l *net.UnixListener, o agentOptions) {
	path := h.join(agentSocket)
	mine, err := os.Lstat(path)
	look := time.NewTicker(min(time.Second, max(o.idle/4, time.Millisecond)))
	defer look.Stop()
	for err == nil {
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.Retired():
			err = errors.New("retired")
		case <-look.C:
			now, lerr := os.Lstat(path)
			switch {
			case lerr != nil || !os.SameFile(mine, now):
				return // what is there is not this agent's
			case s.IdleFor() >= o.idle:
				err = errors.New("idle")
			}
		}
	}
	o.log.Debug("agent ends", "why", err)
	if now, err := os.Lstat(path); err == nil && os.SameFile(mine, now) {
		_ = os.Remove(path) // before the listener: nobody finds a socket without an agent
	}
}

// warm makes a session ahead. Should it fail, whoever comes meets the same, and is told.
func (h home) warm(ctx context.Context, s *agent.Server, o agentOptions) {
	known, err := h.known()
	if err != nil {
		return
	}
	if e, ok := known.Lookup(o.warm); ok {
		if err := s.Warm(ctx, e.Relay, e.Key); err != nil {
			o.log.Debug("no session ahead", "executor", o.warm, "err", err)
		}
	}
}

// agentSoftware tells builds apart: an agent of another one may mean something else by what is said to it. The file's own time and size
// do for builds without a version.
func agentSoftware() string {
	path, err := os.Executable()
	if err != nil {
		return software()
	}
	info, err := os.Stat(path)
	if err != nil {
		return software()
	}
	return fmt.Sprintf("%s %d %d", software(), info.Size(), info.ModTime().UnixNano())
}

// useAgent has a client use the agent if there is a socket, and else start one soon: once the client is at work, or when it ends. Call
// the function it returns at the end.
func (h home) useAgent(alias string) (tune func(*client.Config), end func()) {
	if !h.wantsAgent() {
		return func(*client.Config) {}, func() {}
	}
	start := time.AfterFunc(agentDelay, func() { h.startAgent(alias) })
	end = func() {
		if start.Stop() {
			h.startAgent(alias)
		}
	}
	if h.hasAgent() {
		start.Stop()
		end = func() {}
	}
	return func(cfg *client.Config) {
		cfg.Agent = agent.New(h.join(agentSocket), agentSoftware(), cfg.Key.Public(), cfg.Relay)
	}, end
}

// agentDelay keeps the start of an agent from taking the processor from the command that somebody waits for.
const agentDelay = 300 * time.Millisecond

// hasAgent reports whether somebody listens at the socket.
func (h home) hasAgent() bool {
	conn, err := net.DialTimeout("unix", h.join(agentSocket), time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}
