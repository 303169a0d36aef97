//go:build linux

package main

import (
	"regexp"
	"strings"
	"testing"
)

// lifeBlocks are the code blocks of the README about keys and backups.
func lifeBlocks(t *testing.T) (newRelay, replace, backup, relayBack, othersBack string) {
	t.Helper()
	b := readmeBlocks(t, "Keys, backups, clones", 5)
	return b[0], b[1], b[2], b[3], b[4]
}

func TestBackupsOfTheReadmeBringEachPartyBack(t *testing.T) {
	e := newEnrolled(t)
	_, _, backup, relayBack, othersBack := lifeBlocks(t)
	executorBack, clientBack, _ := strings.Cut(othersBack, "\n")
	e.run(counted)
	e.until("postern token new --name spare --out ../spare")
	e.run("cp ../spare ../kept")
	e.run(backup)
	e.run("tar -tzf executor.tgz | grep -q executor.key; ! tar -tzf executor.tgz | grep -q execs")
	e.run("tar -tzf relay.tgz | grep -q relay.key; tar -tzf client.tgz | grep -q known_executors")
	e.daemon("postern executor --state ../spare-state --join ../spare").stop() // the token is spent after the backup

	e.run("rm -r ~/.config/postern")
	e.fails(125, "postern exec builder -- true")
	e.run(clientBack)
	e.run("postern exec builder -- true")

	// The relay's folder is lost. What was spent since admits nobody once more.
	e.relay.stop()
	e.run("rm -r /var/lib/postern-relay")
	e.run(relayBack)
	if again := e.daemon(relayLine); again.line != e.relay.line {
		t.Errorf("the restored relay is %s, want %s", again.line, e.relay.line)
	}
	e.until("postern exec builder -- true")
	if got := e.fails(1, "postern executor --state ../thief --join ../kept"); !strings.Contains(got, "does not know this join token") {
		t.Errorf("with a token that was spent after the backup: %s", got)
	}

	// The executor's is put over what is there, and knows what has run.
	e.executor.stop()
	e.run(executorBack)
	e.executor = e.daemon(executorLine)
	e.until("postern exec builder -- true")
	e.run(counted)
	if n := e.ran(); n != 1 {
		t.Errorf("one id has run %d times, want once", n)
	}

	// It is the same executor also where nothing was left.
	e.executor.stop()
	e.run("rm -r /var/lib/postern-executor")
	e.run(executorBack)
	if back := e.daemon(executorLine); back.line != e.executor.line {
		t.Errorf("the restored executor is %s, want %s", back.line, e.executor.line)
	}
	e.until("postern exec builder -- true")
}

func TestLostRelayKeyIsReplacedAsTheReadmeSays(t *testing.T) {
	e := newEnrolled(t)
	newRelay, replace, backup, _, _ := lifeBlocks(t)
	e.run(backup)
	e.relay.stop()
	e.run("rm -r /var/lib/postern-relay; tar -C /var/lib -xzf relay.tgz postern-relay/tenants postern-relay/enrolled")
	relay := e.daemon(relayLine)
	if relay.line == e.relay.line {
		t.Fatal("the relay has its old key still")
	}
	e.fails(125, "postern exec builder -- true")
	_, old, _ := strings.Cut(e.relay.line, "#")
	_, key, _ := strings.Cut(relay.line, "#")
	e.executor.stop()
	e.executor = e.daemon(strings.NewReplacer("relay.example.org:4433", e.address, "relay_...", key).Replace(newRelay))
	e.run(strings.NewReplacer("relay_OLD...", old, "relay_...", key).Replace(replace))
	e.until("postern exec builder -- true")

	// The new address was written down: later starts need none.
	e.executor.stop()
	e.daemon(executorLine)
	e.until("postern exec builder -- true")
}

func TestClientKeyIsReplacedAndFindsWhatTheOldOneStarted(t *testing.T) {
	e := newEnrolled(t)
	e.run(`sed -i 's/^client_/as=alice &/' /var/lib/postern-executor/authorized_clients
		mkdir -p next; cp ~/.config/postern/known_executors next
		key=$(postern keygen --kind client --out next/client.key)
		postern tenant add --state /var/lib/postern-relay acme $key alice-2
		echo "as=alice $key alice-2" >>/var/lib/postern-executor/authorized_clients`)
	e.says("authorized clients reread")
	e.until("POSTERN_HOME=next postern exec builder -- true")
	id := strings.TrimSpace(e.until("postern exec -d builder -- sh -c 'echo ours; until [ -e go ]; do sleep 0.02; done'"))
	if got := e.until("POSTERN_HOME=next postern ps -q builder"); !strings.Contains(got, id) {
		t.Fatalf("the new key sees %q, want %s", got, id)
	}
	e.run("touch ../build/go")
	if got := e.until("POSTERN_HOME=next postern attach builder " + id); got != "ours\n" {
		t.Errorf("the new key reads %q", got)
	}
	old := strings.TrimSpace(e.run("postern pubkey ~/.config/postern/client.key"))
	e.run("postern tenant rm --state /var/lib/postern-relay acme " + old + `
		sed -i '/ ` + old + `/d' /var/lib/postern-executor/authorized_clients`)
	if !eventually(func() bool { return e.shell("postern exec --reconnect 0 builder -- true").Run() != nil }) {
		t.Error("the old key is admitted still")
	}
	e.fails(125, "postern exec builder -- true")
	if got := e.until("POSTERN_HOME=next postern logs builder " + id); got != "ours\n" {
		t.Errorf("once the old key is gone the new one reads %q", got)
	}
}

// The command of a removed key ends, and its client is told why; the same key's connection is closed at
// the relay. Neither is waited for but by the event itself.
func TestRemovedClientLineEndsItsCommand(t *testing.T) {
	e := newEnrolled(t)
	run := e.start("postern exec builder -- sh -c 'echo up; exec sleep 1000.202'")
	if !eventually(func() bool { return run.stdout.String() == "up\n" }) {
		t.Fatalf("the command never runs: %s", run.stderr.String())
	}
	e.run("sed -i '/^client_/d' /var/lib/postern-executor/authorized_clients")
	_ = run.cmd.Wait() // the exit code is looked at
	if got := run.cmd.ProcessState.ExitCode(); got != 255 || !regexp.MustCompile(`^postern: builder: .*key was removed[^\n]*\n$`).MatchString(run.stderr.String()) {
		t.Errorf("exit code %d, %q, want 255 and that the key was removed", got, run.stderr.String())
	}
	if !eventually(func() bool { return len(processesWith("1000.202")) == 0 }) {
		t.Error("the command runs on")
	}
}
