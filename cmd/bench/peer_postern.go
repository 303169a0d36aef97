//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay"
	"github.com/postern-relay/postern/relay/roster"
)

// executorName is what the client calls its executor.
const executorName = "box"

// buildPostern builds the program as it is delivered, or takes a copy of one that there is: whatever runs from the
// temporary folder is this run's own.
func buildPostern(ctx context.Context, dir, given string) (string, error) {
	program := filepath.Join(dir, "postern")
	if given != "" {
		content, err := os.ReadFile(given)
		if err != nil {
			return "", fmt.Errorf("-postern: %w", err)
		}
		return program, os.WriteFile(program, content, 0o755)
	}
	build := prepare(exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-trimpath", "-o", program, "github.com/postern-relay/postern/cmd/postern"))
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if err := runOnce(build); err != nil {
		return "", fmt.Errorf("building postern (run this inside its repository, or name a binary with -postern): %w", err)
	}
	return program, nil
}

// relayProcess is `postern relay`, watched on its metrics listener.
type relayProcess struct {
	program, dir, address, watched string
	url                            keys.RelayURL
	*daemon
}

// newRelay starts a relay whose list of tenants has these lines.
func newRelay(ctx context.Context, program, dir string, tenants []string) (*relayProcess, error) {
	r := &relayProcess{program: program, dir: dir}
	var err error
	if r.address, err = freeAddress(); err != nil {
		return nil, err
	}
	if r.watched, err = freeAddress(); err != nil {
		return nil, err
	}
	state := filepath.Join(dir, "relay")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(state, roster.ListedFile), []byte(strings.Join(tenants, "\n")+"\n"), 0o600); err != nil {
		return nil, err
	}
	return r, r.start(ctx)
}

// start starts it, or again after an end, under the same address and with the same key.
func (r *relayProcess) start(ctx context.Context) error {
	// A fleet comes from many addresses, this one from a single one.
	cmd := exec.Command(r.program, "relay", "--listen", r.address, "--state", filepath.Join(r.dir, "relay"),
		"--metrics", r.watched, "--pprof", "--exempt", "127.0.0.1/32", "--log-level", "warn")
	cmd.Env = plainEnv(r.dir)
	var err error
	if r.daemon, err = startDaemon(cmd, filepath.Join(r.dir, "relay.log"), false); err != nil {
		return err
	}
	line, err := r.line(ctx)
	if err == nil {
		r.url, err = keys.ParseRelayURL(line)
	}
	if err != nil {
		r.stop()
	}
	return err
}

func (r *relayProcess) stop() {
	r.kill() // it would wait for its executors
}

// through is the relay's address by way of a forwarder.
func through(u keys.RelayURL, address string) (keys.RelayURL, error) {
	return keys.ParseRelayURL(fmt.Sprintf("postern://%s#%s", address, u.Key))
}

// plainEnv keeps a user's settings out of what is measured.
func plainEnv(home string) []string {
	return []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LANG=C", "TERM=xterm", "TMPDIR=" + os.TempDir()}
}

// posternSite is one relay, one executor and a client.
type posternSite struct {
	program, dir string
	relay        *relayProcess
	executor     *daemon
	watched      string // the executor's metrics
	client       *client.Client
	box          client.Environment
	// The legs to the relay, nil where nothing is added.
	near, far *udpDelay
}

// newPostern brings a site up, and returns when a command has run on it.
func newPostern(ctx context.Context, program, dir string, delay time.Duration) (_ *posternSite, err error) {
	s := &posternSite{program: program, dir: dir}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, name := range []string{"executor", "client", "work"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			return nil, err
		}
	}
	executorKey, _, err := keys.LoadOrGenerate(filepath.Join(dir, "executor", "executor.key"), keys.Executor)
	if err != nil {
		return nil, err
	}
	clientKey, _, err := keys.LoadOrGenerate(filepath.Join(dir, "client", "client.key"), keys.Client)
	if err != nil {
		return nil, err
	}
	if s.relay, err = newRelay(ctx, program, dir, []string{
		"tenant bench", fmt.Sprintf("client %v client", clientKey.Public()), fmt.Sprintf("exec %v %s", executorKey.Public(), executorName),
	}); err != nil {
		return nil, err
	}
	clientURL, executorURL := s.relay.url, s.relay.url
	if delay > 0 {
		if s.near, err = newUDPDelay(s.relay.address, delay); err != nil {
			return nil, err
		}
		if s.far, err = newUDPDelay(s.relay.address, delay); err != nil {
			return nil, err
		}
		if clientURL, err = through(s.relay.url, s.near.address()); err != nil {
			return nil, err
		}
		if executorURL, err = through(s.relay.url, s.far.address()); err != nil {
			return nil, err
		}
	}
	if err := keys.AddAuthorizedClient(filepath.Join(dir, "executor", "authorized_clients"), clientKey.Public(), "bench"); err != nil {
		return nil, err
	}
	known := fmt.Sprintf("%s %s %s\n", executorName, executorKey.Public(), clientURL)
	if err := os.WriteFile(filepath.Join(dir, "client", "known_executors"), []byte(known), 0o600); err != nil {
		return nil, err
	}
	if err := s.startExecutor(ctx, executorURL); err != nil {
		return nil, err
	}
	if s.client, err = client.New(client.Config{Key: clientKey, Relay: clientURL}); err != nil {
		return nil, err
	}
	s.box = client.Environment{Name: executorName, Backend: s.client.Executor(executorKey.Public())}
	return s, s.firstCommand(ctx)
}

func (s *posternSite) startExecutor(ctx context.Context, relay keys.RelayURL) error {
	var err error
	if s.watched, err = freeAddress(); err != nil {
		return err
	}
	cmd := exec.Command(s.program, "executor", "--relay", relay.String(), "--name", executorName, "--state", filepath.Join(s.dir, "executor"),
		"--workspace", filepath.Join(s.dir, "work"), "--metrics", s.watched, "--pprof", "--log-level", "warn")
	cmd.Env = plainEnv(s.dir)
	if s.executor, err = startDaemon(cmd, filepath.Join(s.dir, "executor.log"), false); err != nil {
		return err
	}
	_, err = s.executor.line(ctx)
	return err
}

// firstCommand runs true until it works: the executor may not be registered yet.
func (s *posternSite) firstCommand(ctx context.Context) error {
	var last error
	err := await(ctx, "the first command", startPatience, func() bool {
		last = s.box.Command("true").Run(ctx)
		return last == nil
	})
	if err != nil && last != nil {
		return s.executor.failed(fmt.Sprintf("%v: %v", err, last))
	}
	return err
}

// command is the command line client, in a process of its own.
func (s *posternSite) command(ctx context.Context, args ...string) *exec.Cmd {
	return s.commandWith(ctx, "POSTERN_AGENT=off", args...)
}

func (s *posternSite) commandWith(ctx context.Context, setting string, args ...string) *exec.Cmd {
	cmd := prepare(exec.CommandContext(ctx, s.program, args...))
	cmd.Env = append(plainEnv(s.dir), "POSTERN_HOME="+filepath.Join(s.dir, "client"), setting)
	return cmd
}

// hasAgent tells whether the command line client keeps something in the background: a process that it has left.
func (s *posternSite) hasAgent(ctx context.Context) (bool, error) {
	err := runOnce(s.commandWith(ctx, "POSTERN_AGENT=on", "exec", executorName, "--", "true"))
	return len(strays(s.program)) > 0, err
}

func (s *posternSite) close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.executor != nil {
		s.executor.stop()
	}
	if s.relay != nil && s.relay.daemon != nil {
		s.relay.stop()
	}
	for _, leg := range []*udpDelay{s.near, s.far} {
		if leg != nil {
			leg.close()
		}
	}
}

// get is what a metrics listener shows under a path.
func get(ctx context.Context, address, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, answer.Status)
	}
	return io.ReadAll(answer.Body)
}

// sampleOf is one series without labels.
func sampleOf(ctx context.Context, address, series string) (float64, error) {
	text, err := get(ctx, address, "/metrics")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, found := strings.CutPrefix(line, series+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("the metrics have no %s", series)
}

// processorTime is what the relay has used so far, in seconds.
func (s *posternSite) processorTime() float64 { return treeCPU(s.relay.cmd.Process.Pid) }

// online tells how many executors a relay has.
func online(ctx context.Context, watched string) int {
	var status relay.Status
	text, err := get(ctx, watched, "/statusz")
	if err != nil || json.Unmarshal(text, &status) != nil {
		return -1 // it may be starting
	}
	return status.Executors
}
