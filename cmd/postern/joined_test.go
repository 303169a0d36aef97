//go:build linux

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
)

// A new machine whose clock is hours off joins: only the relay looks at the expiry, on its own clock. To a machine with a fast
// clock a token looks as this one does, which is the same but for an expiry long past.
func TestMachineWithAClockHoursOffJoins(t *testing.T) {
	e := newEnrolled(t)
	e.until("postern token new --name vm --out ../vm.token")
	path := filepath.Join(e.dir, "vm.token")
	token, err := keys.ParseJoinToken(readFile(t, path))
	if err != nil {
		t.Fatal(err)
	}
	late, err := keys.NewJoinToken(token.Relay, token.Clients, token.Pattern, time.Now().Add(-12*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	late.ID, late.Secret, late.Pairing = token.ID, token.Secret, token.Pairing
	text, err := late.Text()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e.daemon("postern executor --state ../vm --join ../vm.token")
	e.until("postern exec vm -- true")

	// What the relay finds expired stays out, whatever the token says.
	e.until("postern token new --name old --ttl 1s --out ../old.token")
	e.until("postern token ls --json | grep '\"names\":\"old\".*\"expired\":true'")
	if got := e.fails(1, "postern executor --state ../old --join ../old.token"); !strings.Contains(got, "has expired on the relay's clock: make a new one") {
		t.Errorf("with an expired token: %s", got)
	}
}

// Of two machines from one image the second is refused while the first is alive, both logs say so, and when the first is gone
// the second takes over. By itself it tries again after the minute that the relay asks for; a restart saves this test that.
func TestCloneIsRefusedWhileTheFirstIsAliveAndTakesOverWhenItIsGone(t *testing.T) {
	e := newEnrolled(t)
	e.executor.stop()
	e.run("cp -r /var/lib/postern-executor ../clone")
	first := e.daemon(executorLine)
	e.until("postern exec builder -- true")
	clone := e.daemon("postern executor --state ../clone --workspace ..")
	if clone.line != first.line {
		t.Fatalf("the clone is %s, want %s", clone.line, first.line)
	}
	e.says(`level=WARN msg="executor refused: another process uses its key and is alive"`)               // the relay
	e.says(`level=WARN msg="another machine came to the relay with this executor's key and was refused`) // the first
	e.says(`level=WARN msg="not registered" err=`)                                                       // the clone
	if got := e.run("postern exec builder -- pwd"); got != e.dir+"/build\n" {
		t.Errorf("the machine in use works in %q, want the first one's workspace", got)
	}
	first.stop()
	clone.stop()
	e.daemon("postern executor --state ../clone --workspace ..")
	e.until("postern exec builder -- true")
	if got := e.run("postern exec builder -- pwd"); got != e.dir+"\n" {
		t.Errorf("once the first is gone the machine in use works in %q, want the clone's workspace", got)
	}
}
