//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// enrolled is a deployment in which an executor has joined by a token, as the README says, and was used once.
type enrolled struct {
	*deployment
	relay, executor *servant
}

const (
	relayLine    = "postern relay --listen relay.example.org:4433 --state /var/lib/postern-relay"
	executorLine = "postern executor --state /var/lib/postern-executor --workspace /srv/build"
)

func newEnrolled(t *testing.T) *enrolled {
	t.Helper()
	t.Parallel()
	needSandbox(t)
	e := &enrolled{deployment: newDeployment(t)}
	e.replace("relay.example.org:4433", e.address, "/var/lib", e.dir, "/srv/", e.dir+"/")
	e.relay = e.daemon(relayLine)
	e.run("mkdir -p .config; postern tenant add --state /var/lib/postern-relay acme $(postern keygen --kind client --out ~/.config/postern/client.key) alice")
	e.until("postern token new --relay '" + e.relay.line + "' --name builder --out ../token")
	e.executor = e.daemon(executorLine + " --join ../token")
	e.until("postern exec builder -- true")
	return e
}

// until repeats lines until they succeed, and is what they print.
func (d *deployment) until(lines string) (printed string) {
	d.t.Helper()
	var last error
	if !eventually(func() bool {
		out, err := d.shell(lines).Output()
		printed, last = string(out), err
		return err == nil
	}) {
		d.t.Fatalf("%s: never succeeds: %v\n%s", lines, last, d.log.String())
	}
	return printed
}

// fails runs lines that must exit with a code, and is what they say on stderr.
func (d *deployment) fails(code int, lines string) string {
	d.t.Helper()
	cmd := d.shell(lines)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	_ = cmd.Run() // the exit code is looked at
	if got := cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("%s: exit code %d, want %d: %s", lines, got, code, stderr.String())
	}
	return stderr.String()
}

// says waits until the daemons' log has a text.
func (d *deployment) says(text string) {
	d.t.Helper()
	if !eventually(func() bool { return strings.Contains(d.log.String(), text) }) {
		d.t.Fatalf("the log never says %q:\n%s", text, d.log.String())
	}
}

// has reports whether a file below the deployment's folder has a text.
func (d *deployment) has(file, text string) bool {
	b, _ := os.ReadFile(filepath.Join(d.dir, file)) // none has nothing
	return strings.Contains(string(b), text)
}

// gets waits until it has.
func (d *deployment) gets(file, text string) {
	d.t.Helper()
	if !eventually(func() bool { return d.has(file, text) }) {
		d.t.Fatalf("%s never has %q:\n%s", file, text, d.log.String())
	}
}

// ran is how often the command of counted has run.
func (d *deployment) ran() int {
	b, _ := os.ReadFile(filepath.Join(d.dir, "build/count")) // none: never
	return strings.Count(string(b), "\n")
}

// counted starts one command, under one id whenever it is used.
const counted = "postern exec --id c0c00000000000000000000000000001 builder -- sh -c 'echo ran >>count'"

// knownFileHere is the client's list, below the deployment's folder.
const knownFileHere = "home/.config/postern/known_executors"
