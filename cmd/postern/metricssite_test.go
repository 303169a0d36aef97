//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/quicconn"
)

// watchedRelay is a relay process that shows its metrics. Its peers are in this process and speak the protocol
// themselves, so that each of them can misbehave.
type watchedRelay struct {
	*site
	url     keys.RelayURL
	watch   string // where it is watched: http://127.0.0.1:PORT
	watches int    // how often it was started
}

func newWatchedRelay(t *testing.T, flags ...string) *watchedRelay {
	t.Helper()
	w := &watchedRelay{site: &site{t: t, dir: t.TempDir()}}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the relay said:\n%s", w.log.String())
		}
	})
	if err := os.Mkdir(w.path("relay"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.relay = w.daemon(append([]string{
		"relay", "--state", w.path("relay"), "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
	}, flags...)...)
	w.start()
	return w
}

var shownAt = regexp.MustCompile(`metrics are shown.* address=(127\.0\.0\.1:[1-9][0-9]*)`)

// start starts the relay, and finds out where it is.
func (w *watchedRelay) start() {
	w.t.Helper()
	var err error
	if w.url, err = keys.ParseRelayURL(w.relay.start()); err != nil {
		w.t.Fatal(err)
	}
	w.watches++
	if !eventually(func() bool {
		shown := shownAt.FindAllStringSubmatch(w.log.String(), -1)
		if len(shown) < w.watches {
			return false
		}
		w.watch = "http://" + shown[len(shown)-1][1]
		return true
	}) {
		w.t.Fatal("the log does not say where metrics are shown")
	}
}

// get is what the relay shows at a path, and the HTTP status.
func (w *watchedRelay) get(path string) (int, string) {
	w.t.Helper()
	response, err := http.Get(w.watch + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// sample is a line of the text format.
var sample = regexp.MustCompile(`^([a-zA-Z_:][a-zA-Z0-9_:]*(?:\{.*\})?) (\S+)$`)

// series are all the samples that the relay shows, as NAME{LABEL="VALUE"}.
func (w *watchedRelay) series() map[string]float64 {
	w.t.Helper()
	status, text := w.get("/metrics")
	if status != http.StatusOK {
		w.t.Fatalf("/metrics: %d: %s", status, text)
	}
	all := make(map[string]float64)
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		m := sample.FindStringSubmatch(lines.Text())
		if m == nil {
			w.t.Fatalf("/metrics: a line that is no sample: %q", lines.Text())
		}
		value, err := strconv.ParseFloat(m[2], 64)
		if _, twice := all[m[1]]; err != nil || twice {
			w.t.Fatalf("/metrics: %q is no number, or there twice", lines.Text())
		}
		all[m[1]] = value
	}
	return all
}

// families are the names, and the kinds, of what the relay shows of its own.
func (w *watchedRelay) families() map[string]string {
	w.t.Helper()
	_, text := w.get("/metrics")
	all := make(map[string]string)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (postern_\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// admit replaces the relay's list, and waits until that is in force.
func (w *watchedRelay) admit(list string) {
	w.t.Helper()
	w.write("relay/tenants", list)
	before := w.series()["postern_relay_config_reload_success_timestamp_seconds"]
	w.hangUp()
	if !eventually(func() bool { return w.series()["postern_relay_config_reload_success_timestamp_seconds"] > before }) {
		w.t.Fatal("the relay does not take its list")
	}
}

func (w *watchedRelay) hangUp() {
	w.t.Helper()
	if err := w.relay.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		w.t.Fatal(err)
	}
}

// relayHop is an admitted peer's connection.
type relayHop struct {
	*quicconn.Conn
	t testing.TB
}

// helloOf is what a peer with a key says in the beginning.
func helloOf(key *keys.PrivateKey) *wire.HopHello {
	role := wire.RoleClient
	if key.Kind() == keys.Executor {
		role = wire.RoleExecutor
	}
	return &wire.HopHello{Role: role, Versions: wire.Versions, Instance: wire.ID(wire.NewExecID())}
}

// tryJoin connects with a key, to the relay at address, and is told no or answers the relay's pings from then on.
func (w *watchedRelay) tryJoin(address string, relay keys.PublicKey, key *keys.PrivateKey, hello *wire.HopHello) (*relayHop, error) {
	w.t.Helper()
	c, err := relaytest.Dial(w.t.Context(), address, quicconn.Options{Role: hello.Role})
	if err != nil {
		return nil, err
	}
	h, err := noiseconn.Join(w.t.Context(), c, key, relay, hello)
	if err != nil {
		_ = c.Close(wire.CodeShutdown, "refused")
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = h.Run(ctx, wire.ClientHeartbeat) })
	w.t.Cleanup(func() {
		cancel()
		_ = c.Close(wire.CodeShutdown, "over")
		running.Wait()
	})
	return &relayHop{Conn: c, t: w.t}, nil
}

func (w *watchedRelay) join(key *keys.PrivateKey) *relayHop {
	w.t.Helper()
	h, err := w.tryJoin(w.url.Address(), w.url.Key, key, helloOf(key))
	if err != nil {
		w.t.Fatal(err)
	}
	return h
}

func (h *relayHop) leave() { _ = h.Close(wire.CodeShutdown, "leaves") }

// dial asks for a circuit, and is the relay's answer.
func (h *relayHop) dial(executor *keys.PrivateKey) (wire.Stream, error) {
	h.t.Helper()
	s, err := h.OpenStream(h.t.Context())
	if err != nil {
		h.t.Fatal(err)
	}
	if err := wire.WriteFrame(s, &wire.Dial{Executor: executor.Public().Raw()}); err != nil {
		h.t.Fatal(err)
	}
	m, err := wire.ReadFrame(s)
	reply, ok := m.(*wire.DialReply)
	if err != nil || !ok {
		h.t.Fatalf("dial: answered with %T, %v", m, err)
	}
	return s, reply.Err()
}

// joinedCircuit is a circuit between a client and an executor, which has nothing else to accept.
func joinedCircuit(t testing.TB, c, e *relayHop, key *keys.PrivateKey) (near, far wire.Stream) {
	t.Helper()
	near, err := c.dial(key)
	if err != nil {
		t.Fatal(err)
	}
	if far, err = e.AcceptStream(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := wire.ReadFrame(far); err != nil {
		t.Fatal(err)
	}
	return near, far
}

// endCircuit ends both directions cleanly.
func endCircuit(near, far wire.Stream) {
	_, _ = near.CloseWrite(), far.CloseWrite() // what the relay counts shows whether they have ended
	_, _ = io.Copy(io.Discard, far)
	_, _ = io.Copy(io.Discard, near)
}

// rosterText is a list of tenants: a line of each with its limits, and its members.
func rosterText(tenants ...string) string { return strings.Join(tenants, "\n") + "\n" }

func memberLine(key *keys.PrivateKey, name string) string {
	return fmt.Sprintf("%s %s %s", key.Kind(), key.Public(), name)
}

// token makes a join token of the client's, which the relay accepts once.
func (w *watchedRelay) token(by *keys.PrivateKey) *keys.JoinToken {
	w.t.Helper()
	token, err := keys.NewJoinToken(w.url, []keys.TokenClient{{Key: by.Public()}}, "*", time.Now().Add(time.Hour))
	if err != nil {
		w.t.Fatal(err)
	}
	c, err := client.New(client.Config{Key: by, Relay: w.url})
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	if err := c.AddToken(w.t.Context(), wire.AddToken{
		ID: wire.ID(token.ID), Hash: token.Hash(), Pattern: "*", Uses: 1, TTLMillis: uint64(time.Hour / time.Millisecond),
	}); err != nil {
		w.t.Fatal(err)
	}
	return token
}

// joinWith makes a key a member by a token.
func joinWith(t testing.TB, token *keys.JoinToken, key *keys.PrivateKey, name string) error {
	_, err := executor.Join(t.Context(), executor.JoinConfig{
		Key: key, Name: name, Token: token,
		Dial: func(ctx context.Context) (wire.Transport, error) {
			return relaytest.Dial(ctx, token.Relay.Address(), quicconn.Options{Role: wire.RoleExecutor})
		},
	})
	return err
}
