package main

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/postern-relay/postern/"

// rule says what a package must not pull in, directly or not. The reasons are DESIGN.md's.
type rule struct {
	pkg     string
	banned  []string
	because string
}

var rules = []rule{
	{"keys", []string{module}, "identities are a leaf that everything may use"},
	{"sandbox", []string{module}, "the sandbox knows one machine and no network"},
	{"sandbox", []string{"net", "regexp", "path/filepath"}, "its helpers begin when all that it imports is initialized, and these come late"},
	{"sandbox/egress", []string{module}, "the way out of a sandbox knows no sandbox"},
	{"wire", []string{module + "relay", module + "executor", module + "client", module + "sandbox", module + "wire/", "github.com/flynn/noise", "github.com/quic-go"}, "messages are what everybody shares"},
	{"wire/noiseconn", []string{module + "relay", module + "executor", module + "client", module + "sandbox", "github.com/quic-go"}, "the handshake runs over any byte stream"},
	{"wire/quicconn", []string{module + "relay", module + "executor", module + "client", module + "sandbox", "github.com/flynn/noise"}, "the transport knows nothing of what it carries"},
	{"client", []string{module + "relay", module + "executor", module + "sandbox", "github.com/creack/pty", "github.com/prometheus"}, "other programs import it"},
	{"relay", []string{module + "executor", module + "client", module + "sandbox", "os/exec", "github.com/creack/pty"}, "a relay runs nothing and reads nothing"},
	{"executor", []string{module + "relay", module + "client"}, "the three parties do not import one another"},
}

func TestPackagesImportOnlyDownward(t *testing.T) {
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command")
	}
	for _, r := range rules {
		for _, dep := range dependencies(t, module+r.pkg) {
			for _, banned := range r.banned {
				if dep != module+r.pkg && strings.HasPrefix(dep, banned) {
					t.Errorf("%s pulls in %s, but %s", r.pkg, dep, r.because)
				}
			}
		}
	}
	for _, pkg := range goList(t, "-f", "{{.ImportPath}}", module+"...") {
		for _, dep := range dependencies(t, pkg) {
			if dep != pkg && strings.HasPrefix(dep, module+"cmd") {
				t.Errorf("%s imports %s: nothing imports a command", pkg, dep)
			}
		}
	}
}

func dependencies(t *testing.T, pkg string) []string {
	t.Helper()
	return goList(t, "-deps", pkg)
}

func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %s: %v: %s", strings.Join(args, " "), err, stderr.String())
	}
	return strings.Fields(string(out))
}
