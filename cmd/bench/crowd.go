//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

const (
	// crowdVariable makes this program a process full of executors, and says how many.
	crowdVariable = "POSTERN_BENCH_CROWD"
	// paceVariable says how many of them are on their way in at a time.
	paceVariable = "POSTERN_BENCH_PACE"
)

// crowd is that process.
type crowd struct {
	*daemon
	tenants []string // the relay's list that lets them in
}

// crowdAndRelay are n executors that are not connected yet, and a relay of their own, in a folder of this name.
func (b *bench) crowdAndRelay(ctx context.Context, name string, n, pace int) (*crowd, *relayProcess, error) {
	dir := filepath.Join(b.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, nil, err
	}
	c, err := newCrowd(ctx, dir, n, pace)
	if err != nil {
		return nil, nil, err
	}
	relay, err := newRelay(ctx, b.program, dir, c.tenants)
	if err != nil {
		c.kill()
		return nil, nil, err
	}
	return c, relay, nil
}

// newCrowd starts it; it has made its keys when this returns. When all have joined, at most pace at a time, it says a line more.
func newCrowd(ctx context.Context, dir string, n, pace int) (*crowd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(plainEnv(dir), crowdVariable+"="+strconv.Itoa(n), paceVariable+"="+strconv.Itoa(pace), "GOGC=400") // the processors are for the relay
	c := &crowd{tenants: []string{"tenant crowd"}}
	if c.daemon, err = startDaemon(cmd, filepath.Join(dir, "crowd.log"), true); err != nil {
		return nil, err
	}
	for i := range n {
		key, err := c.line(ctx)
		if err != nil {
			c.kill()
			return nil, err
		}
		c.tenants = append(c.tenants, fmt.Sprintf("exec %s e%d", key, i))
	}
	return c, nil
}

// connect makes all of them join a relay.
func (c *crowd) connect(relay keys.RelayURL) error {
	_, err := fmt.Fprintln(c.stdin, relay)
	return err
}

// beCrowd is what the process does: print keys, read the relay's address, stay until the input ends.
func beCrowd(ctx context.Context, count string, in io.Reader, out io.Writer) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	pace, err := strconv.Atoi(os.Getenv(paceVariable))
	if err != nil {
		return err
	}
	all := make([]*keys.PrivateKey, n)
	for i := range all {
		if all[i], err = keys.Generate(keys.Executor); err != nil {
			return err
		}
		fmt.Fprintln(out, all[i].Public())
	}
	input := bufio.NewReader(in)
	text, err := input.ReadString('\n')
	if err != nil {
		return err
	}
	relay, err := keys.ParseRelayURL(strings.TrimSpace(text))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var executors, outside sync.WaitGroup
	door := make(chan struct{}, pace)
	outside.Add(n)
	for _, key := range all {
		executors.Go(func() {
			member := &crowdMember{key: key, relay: relay, instance: wire.ID(wire.NewExecID()), door: door, joined: sync.OnceFunc(outside.Done)}
			_ = quicconn.Redial(ctx, quicconn.Backoff{}, member.stay)
		})
	}
	go func() {
		outside.Wait()
		fmt.Fprintln(out, "all have joined")
	}()
	_, err = io.Copy(io.Discard, input)
	cancel()
	executors.Wait()
	return err
}

// crowdMember is an executor with nothing behind it.
type crowdMember struct {
	key      *keys.PrivateKey
	relay    keys.RelayURL
	instance wire.ID
	door     chan struct{} // who is on its way in has put something into it
	joined   func()
}

// stay joins once, and says since when it was in when that ends.
func (m *crowdMember) stay(ctx context.Context) (time.Time, error) {
	m.door <- struct{}{}
	hop, err := m.join(ctx)
	<-m.door
	if err != nil {
		return time.Time{}, err
	}
	m.joined()
	begun := time.Now()
	defer hop.Transport.Close(wire.CodeShutdown, "")
	err = hop.Run(ctx, wire.ExecutorHeartbeat)
	if leaving := hop.Leaving(); leaving != nil {
		return begun, leaving
	}
	return begun, err
}

func (m *crowdMember) join(ctx context.Context) (*noiseconn.Hop, error) {
	ctx, cancel := context.WithTimeout(ctx, wire.HandshakeTimeout)
	defer cancel()
	address := net.JoinHostPort(m.relay.Host, strconv.Itoa(int(m.relay.Port)))
	c, err := quicconn.Dial(ctx, address, quicconn.Options{Role: wire.RoleExecutor})
	if err != nil {
		return nil, err
	}
	hop, err := noiseconn.Join(ctx, c, m.key, m.relay.Key, &wire.HopHello{Role: wire.RoleExecutor, Versions: wire.Versions, Instance: m.instance})
	if err != nil {
		_ = c.Close(wire.CodeShutdown, "") // the other error says more
	}
	return hop, err
}
