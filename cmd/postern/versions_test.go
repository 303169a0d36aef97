//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// nextVersion is what a peer of tomorrow begins its handshake with.
const nextVersion = wire.Version + 1

// answerNextVersion reads the beginning of a handshake and answers in the next version.
func answerNextVersion(s wire.Stream) error {
	if _, err := io.ReadFull(s, make([]byte, 1)); err != nil {
		return err
	}
	_, err := s.Write([]byte{nextVersion})
	return err
}

// writeHome makes a client's folder that knows one executor, dev.
func writeHome(t *testing.T, key *keys.PrivateKey, executor keys.PublicKey, url string) string {
	t.Helper()
	dir := t.TempDir()
	if err := keys.WriteFile(filepath.Join(dir, "client.key"), key); err != nil {
		t.Fatal(err)
	}
	line := fmt.Sprintf("dev %s %s\n", executor, url)
	if err := os.WriteFile(filepath.Join(dir, "known_executors"), []byte(line), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A peer of another version is told apart from a broken one: both versions are in the line.
var bothVersions = []string{fmt.Sprintf("speaks wire version %d, this build %d", nextVersion, wire.Version)}

func TestRelayOfAnotherWireVersionIsNamedWithBothVersions(t *testing.T) {
	t.Parallel()
	l, err := quicconn.Listen("127.0.0.1:0", quicconn.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			c, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			s, err := c.AcceptStream(ctx)
			if err != nil {
				return err
			}
			return answerNextVersion(s)
		}()
	}()
	url := fmt.Sprintf("postern://%s#%s", l.Addr(), newKey(t, keys.Relay).Public())
	home := writeHome(t, newKey(t, keys.Client), newKey(t, keys.Executor).Public(), url)
	wantFailure(t, exitRefused, bothVersions, []string{"POSTERN_HOME=" + home}, "exec", "dev", "--", "true")
	cancel()
	if err := <-served; err != nil {
		t.Errorf("the relay of another version: %v", err)
	}
	l.Close()
}

func TestExecutorOfAnotherWireVersionIsNamedWithBothVersions(t *testing.T) {
	t.Parallel()
	r := relaytest.Start(t)
	me, it := r.NewPeer(keys.Client), r.NewPeer(keys.Executor)
	url, err := keys.ParseRelayURL(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	c, err := relaytest.Dial(t.Context(), url.Address(), quicconn.Options{Role: wire.RoleExecutor})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(wire.CodeShutdown, "")
	hop, err := noiseconn.Join(t.Context(), c, it, url.Key, &wire.HopHello{
		Role: wire.RoleExecutor, Versions: wire.Versions, Name: "dev", Instance: wire.ID(wire.NewExecID()),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = hop.Run(ctx, wire.ExecutorHeartbeat) }() // ends with ctx
	served := make(chan error, 1)
	go func() {
		served <- func() error {
			s, err := c.AcceptStream(ctx)
			if err != nil {
				return err
			}
			if _, err := wire.ReadFrame(s); err != nil {
				return err
			}
			return answerNextVersion(s)
		}()
	}()
	home := writeHome(t, me, it.Public(), r.URL())
	wantFailure(t, exitRefused, append(bothVersions, "dev: "), []string{"POSTERN_HOME=" + home}, "exec", "dev", "--", "true")
	if err := <-served; err != nil {
		t.Errorf("the executor of another version: %v", err)
	}
	cancel()
	<-ended
}
