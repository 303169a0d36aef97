//go:build linux

package main

import (
	"strings"
	"testing"
)

// away copies the client's folder, for one that is not there while keys are replaced.
func (e *enrolled) away() { e.run("cp -r ~/.config/postern away") }

func TestExecutorKeyIsReplacedWhileItServes(t *testing.T) {
	e := newEnrolled(t)
	old := e.executor.line
	e.run(counted)
	e.away()
	running := strings.TrimSpace(e.run("postern exec -d builder -- sh -c 'until [ -e go ]; do sleep 0.02; done; echo done; exit 7'"))
	next := strings.TrimSpace(e.run("postern executor rekey --state /var/lib/postern-executor"))
	if got := e.fails(1, "postern executor rekey --state /var/lib/postern-executor"); !strings.Contains(got, "under way already: end it with --finish") {
		t.Errorf("a second replacement: %s", got)
	}
	e.says("the executor's key is going to be replaced, and both are served")
	if !eventually(func() bool {
		e.run("postern exec builder -- true") // works all the time
		return e.has(knownFileHere, "builder "+next)
	}) {
		t.Fatalf("the client never learns the next key:\n%s", e.log.String())
	}

	e.run("postern executor rekey --finish --state /var/lib/postern-executor")
	e.says("the executor's key has been replaced")
	if e.has("postern-relay/enrolled", old) || !e.has("postern-relay/enrolled", next) {
		t.Error("the relay's list has the old key still, or not the new one")
	}
	e.until("postern exec builder -- true")
	e.run(counted)
	if n := e.ran(); n != 1 {
		t.Errorf("one id has run %d times, want once", n)
	}
	e.run("touch ../build/go")
	attach := e.shell("postern attach builder " + running)
	if out, err := attach.Output(); string(out) != "done\n" || attach.ProcessState.ExitCode() != 7 {
		t.Errorf("what ran before and after gives %q, %v; want done and exit code 7", out, err)
	}

	// Who was not there learns nothing by itself, and is told what to look at.
	if got := e.fails(125, "POSTERN_HOME=away postern exec builder -- true"); !strings.Contains(got, "executor builder cannot be reached") || !strings.Contains(got, "postern executors") {
		t.Errorf("a client that was away is told: %s", got)
	}
	if got := e.until("POSTERN_HOME=away postern executors"); !strings.Contains(got, "unlisted") || !strings.Contains(got, "not trusted   "+next) {
		t.Errorf("postern executors tells it:\n%s", got)
	}
	e.run("POSTERN_HOME=away postern known replace " + old + " " + next)
	e.run("POSTERN_HOME=away postern exec builder -- true")

	// A restart has the new key.
	e.executor.stop()
	if again := e.daemon(executorLine); again.line != next {
		t.Errorf("after a restart the executor is %s, want %s", again.line, next)
	}
	e.until("postern exec builder -- true")
}

func TestNextKeyThatTheRelayHasForgottenIsNamedAnew(t *testing.T) {
	e := newEnrolled(t)
	e.run("cp /var/lib/postern-relay/enrolled before")
	next := strings.TrimSpace(e.run("postern executor rekey --state /var/lib/postern-executor"))
	e.says("the executor's key is going to be replaced, and both are served")
	e.executor.stop()
	e.relay.stop()
	e.run("cp before /var/lib/postern-relay/enrolled") // as from a backup
	e.relay = e.daemon(relayLine)
	e.executor = e.daemon(executorLine)
	e.gets("postern-relay/enrolled", next)
	if !eventually(func() bool {
		_ = e.shell("postern exec builder -- true").Run() // it has just been started
		return e.has(knownFileHere, "builder "+next)
	}) {
		t.Fatalf("the client never learns the next key:\n%s", e.log.String())
	}
	e.run("postern executor rekey --finish --state /var/lib/postern-executor")
	e.says("the executor's key has been replaced")
	e.until("postern exec builder -- true")
}

func TestOverlapEndsByItself(t *testing.T) {
	e := newEnrolled(t)
	next := strings.TrimSpace(e.run("postern executor rekey --overlap 2s --state /var/lib/postern-executor"))
	e.says("the executor's key has been replaced")
	if e.has("postern-relay/enrolled", e.executor.line) || !e.has("postern-relay/enrolled", next) {
		t.Error("the relay's list has the old key still, or not the new one")
	}
	e.run("postern known replace " + e.executor.line + " " + next + " || true") // unless the client was there in the two seconds
	e.until("postern exec builder -- true")
}

func TestFinishThatWasCutShortRetiresNobody(t *testing.T) {
	e := newEnrolled(t)
	old := e.executor.line
	next := strings.TrimSpace(e.run("postern executor rekey --state /var/lib/postern-executor"))
	e.says("the executor's key is going to be replaced, and both are served")
	e.executor.stop()
	e.run("echo 'retire " + old + "' >>/var/lib/postern-executor/rekey") // it is written before the keys change places
	e.executor = e.daemon(executorLine)
	if e.executor.line != old {
		t.Errorf("it serves %s, want %s", e.executor.line, old)
	}
	e.until("! grep '^retire' /var/lib/postern-executor/rekey")
	e.until("postern exec builder -- true && grep 'builder " + next + "' ~/.config/postern/known_executors") // it asks the next key too, which may be there later
	if !e.has("postern-relay/enrolled", old) || !e.has("postern-relay/enrolled", next) {
		t.Error("the relay has lost one of the two keys")
	}
	e.run("postern executor rekey --finish --state /var/lib/postern-executor")
	e.says("the executor's key has been replaced")
	e.until("postern exec builder -- true")
}

// The overlap outlives a restart; and where the operator has listed the executor by hand, the relay's log says what to do.
func TestOverlapGoesOnAfterARestartAndTheOperatorIsToldOfItsEnd(t *testing.T) {
	e := newEnrolled(t)
	byHand := "postern executor --relay '" + e.relay.line + "' --name tester --state /var/lib/postern-tester"
	tester := e.daemon(byHand)
	old := tester.line
	e.run(`postern tenant add --state /var/lib/postern-relay acme ` + old + ` tester
		postern known add tester ` + old + ` '` + e.relay.line + `'
		echo "$(postern pubkey ~/.config/postern/client.key) alice" >>/var/lib/postern-tester/authorized_clients`)
	e.until("postern exec tester -- true")
	next := strings.TrimSpace(e.run("postern executor rekey --state /var/lib/postern-tester"))
	e.gets("postern-relay/enrolled", next)
	tester.stop()
	tester = e.daemon(byHand)
	if tester.line != old {
		t.Errorf("in the overlap the executor is %s, want %s", tester.line, old)
	}
	if !eventually(func() bool {
		_ = e.shell("postern exec tester -- true").Run() // it has just been started
		return e.has(knownFileHere, "tester "+next)
	}) {
		t.Fatalf("the client never learns the next key:\n%s", e.log.String())
	}
	e.until("postern executor rekey --finish --state /var/lib/postern-tester") // the executor may hear of its admission after the client
	tester.stop()                                                              // at once: what the relay has to be told is not forgotten
	tester = e.daemon(byHand)
	if tester.line != next {
		t.Errorf("after the end of the overlap the executor is %s, want %s", tester.line, next)
	}
	e.says("put the new one in place of the old one in the operator's list")
	e.until("postern exec tester -- true")
	e.run("sed -i s/" + old + "/" + next + "/ /var/lib/postern-relay/tenants")
	e.until("postern exec tester -- true")
	e.says("the executor's key has been replaced")
	third := strings.TrimSpace(e.run("postern executor rekey --state /var/lib/postern-tester"))
	e.gets("postern-relay/enrolled", third)
}

func TestRelayKeyIsReplacedAsTheReadmeSays(t *testing.T) {
	e := newEnrolled(t)
	_, old, _ := strings.Cut(e.relay.line, "#")
	e.away()
	next := strings.TrimSpace(e.run("postern relay rekey --state /var/lib/postern-relay"))
	e.gets("postern-executor/relay", "#"+next) // although it is connected all the time
	e.gets("postern-executor/relay", "replaced "+old)
	if !eventually(func() bool {
		_ = e.shell("postern exec builder -- true").Run()
		return e.has(knownFileHere, "#"+next)
	}) {
		t.Fatalf("the client never learns the relay's next key:\n%s", e.log.String())
	}
	e.run("postern exec builder -- true")
	e.run("postern relay rekey --finish --state /var/lib/postern-relay")
	e.says("the relay's key has been replaced")
	e.run("postern exec builder -- true")

	// The executor follows where somebody still gives the old address, as a unit does.
	e.executor.stop()
	e.executor = e.daemon(executorLine + " --relay 'postern://relay.example.org:4433#" + old + "'")
	e.until("postern exec builder -- true")

	// Who was away is told what it has pinned, and what to do.
	got := e.fails(125, "POSTERN_HOME=away postern exec builder -- true")
	if !strings.Contains(got, old) || !strings.Contains(got, "postern known replace") {
		t.Errorf("a client that was away is told: %s", got)
	}
	e.run("POSTERN_HOME=away postern known replace " + old + " " + next)
	e.run("POSTERN_HOME=away postern exec builder -- true")
}
