//go:build linux

package main

import (
	"encoding/json"
	"net/http"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/postern-relay/postern/keys"
)

// needPrometheus skips where Debian's package prometheus, or what is the same elsewhere, is not installed.
func needPrometheus(t *testing.T) {
	t.Helper()
	for _, program := range []string{"prometheus", "promtool"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs the program %s of Debian's package prometheus", program)
		}
	}
}

// promtool runs it with input, and wants that it finds nothing.
func promtool(t *testing.T, input string, args ...string) {
	t.Helper()
	cmd := exec.Command("promtool", args...)
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestShownMetricsFollowTheRulesOfPrometheus(t *testing.T) {
	t.Parallel()
	needPrometheus(t)
	w := newWatchedRelay(t, "--tenant-metrics", "--accounting", t.TempDir()+"/accounting")
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	w.admit(rosterText("tenant acme", memberLine(client, "c"), memberLine(executor, "e")))
	e := w.join(executor)
	endCircuit(joinedCircuit(t, w.join(client), e, executor))
	if !eventually(func() bool { return w.series()[`postern_relay_tenant_dials_total{outcome="ok",tenant="acme"}`] == 1 }) {
		t.Error("the circuit is not counted")
	}
	_, text := w.get("/metrics")
	promtool(t, text, "check", "metrics")
	if n := len(w.series()); n > 1000 {
		t.Errorf("%d series of one relay, want at most 1000", n)
	}
}

func TestDrainingRelayLivesAndIsNotReady(t *testing.T) {
	t.Parallel()
	w := newWatchedRelay(t, "--drain", "5m")
	client, executor := newKey(t, keys.Client), newKey(t, keys.Executor)
	w.admit(rosterText("tenant acme", memberLine(client, "c"), memberLine(executor, "e")))
	near, far := func() (near, far interface{ CloseWrite() error }) {
		e := w.join(executor)
		return joinedCircuit(t, w.join(client), e, executor)
	}()
	want := func(path string, status int, text string) {
		t.Helper()
		if got, body := w.get(path); got != status || !strings.Contains(body, text) {
			t.Errorf("%s: %d %q, want %d %q", path, got, body, status, text)
		}
	}
	want("/livez", http.StatusOK, "ok")
	want("/readyz", http.StatusOK, "ok")
	want("/debug/pprof/", http.StatusNotFound, "")
	want("/", http.StatusNotFound, "")
	var status struct {
		Executors, Clients, Circuits, Tenants, Members int
	}
	if _, body := w.get("/statusz"); json.Unmarshal([]byte(body), &status) != nil {
		t.Errorf("/statusz is not JSON: %s", body)
	}
	if status.Executors != 1 || status.Clients != 1 || status.Circuits != 1 || status.Tenants != 1 || status.Members != 2 {
		t.Errorf("/statusz: %+v, want one executor, client, circuit and tenant, and two members", status)
	}
	if err := w.relay.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if !eventually(func() bool { code, _ := w.get("/readyz"); return code == http.StatusServiceUnavailable }) {
		t.Error("a relay that drains says that it is ready")
	}
	want("/readyz", http.StatusServiceUnavailable, "draining")
	want("/livez", http.StatusOK, "ok")
	_, _ = near.CloseWrite(), far.CloseWrite()
	if err := <-w.relay.ended; err != nil {
		t.Errorf("a drained relay ends with %v", err)
	}
	w.relay.cmd = nil // it has ended
}

// anyKey is the text of any key or token.
var anyKey = regexp.MustCompile(`(relay|client|exec|join|[a-z]+secret)_[a-z2-7]{40,}`)

func TestNothingSecretIsShown(t *testing.T) {
	t.Parallel()
	w := newWatchedRelay(t, "--pprof")
	client, executor, joined := newKey(t, keys.Client), newKey(t, keys.Executor), newKey(t, keys.Executor)
	const tenant, name = "secrettenant", "secretname"
	w.admit(rosterText("tenant "+tenant, memberLine(client, name+"1"), memberLine(executor, name+"2")))
	token := w.token(client)
	if err := joinWith(t, token, joined, name+"3"); err != nil {
		t.Fatal(err)
	}
	e := w.join(executor)
	endCircuit(joinedCircuit(t, w.join(client), e, executor))
	if !eventually(func() bool { return w.series()[`postern_relay_circuit_ends_total{reason="ok"}`] == 1 }) {
		t.Error("the circuit does not end")
	}
	text, err := token.Text()
	if err != nil {
		t.Fatal(err)
	}
	secrets := []string{tenant, name, text, token.ID.String(), w.dir}
	for _, key := range []*keys.PrivateKey{client, executor, joined} {
		secrets = append(secrets, key.Public().String())
	}
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/statusz", "/debug/pprof/", "/debug/pprof/goroutine?debug=2", "/debug/pprof/heap?debug=1"} {
		status, body := w.get(path)
		if status != http.StatusOK {
			t.Errorf("%s: %d", path, status)
		}
		for _, secret := range secrets {
			if strings.Contains(body, secret) {
				t.Errorf("%s shows %q", path, secret)
			}
		}
		if key := anyKey.FindString(body); key != "" {
			t.Errorf("%s shows a key or a token: %s", path, key)
		}
	}
	if status, _ := w.get("/debug/pprof/cmdline"); status != http.StatusNotFound {
		t.Errorf("the command line is shown: %d", status)
	}
}
