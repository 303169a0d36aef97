package sandbox

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write CHECKS.md anew")

const documentHead = `# What is tried against the sandbox

This file is written from the tables in the ` + "`checks_*_linux_test.go`" + ` files of this folder: change
those, then run ` + "`go test ./sandbox -run TestChecks -update`" + `. The test fails while the two differ.

Every row runs in a fresh sandbox, as each identity that the test can take:

| identity | how the rows run |
| --- | --- |
| a root daemon, commands of another uid | all of them, when the test runs as root |
| a daemon of an ordinary user | all of them; a test that runs as root starts itself again as uid 65534. F13 needs root to make its file |
| a root daemon without user namespaces | not supported: it refuses to start anything and names the remedy, which is the check (TestMissingLayerIsNamedAndNothingRuns) |

The reduced level, which the owner of a
machine must choose by name, promises less than this table; its own tests are in
` + "`reduced_linux_test.go`" + `.

**Carried by** is what stops the attempt. The test leaves out the real set-up step of each
layer in turn and wants exactly the rows of that layer to fail: *view* (mounts, hiding,
protected names, private folders, devices, /proc), *landlock*, *seccomp*, *namespaces* (network
and IPC), *capabilities*, *limits*. *Several*: still stopped when any one of them is missing.
*Several, seccomp on some machines*: where the kernel's own settings would let it pass, only
that layer is left. *Process ids*: of a namespace that cannot be left out safely, since its
kill of everything would reach everything of the user. *Init* and *daemon*: what these do
themselves, in any case. *Accepted hole*: the row records what is possible.

In a script ` + "`WS`" + ` is a writable root, ` + "`OUT`" + ` a folder beside it, ` + "`B`" + ` what holds both, ` + "`P`" + ` a program
that makes one system call and prints how it ended, and ` + "`try`" + ` prints whether a command *did*
what it was told or was *refused*. All files have modes that let anybody write.

`

// document is the text of CHECKS.md.
func document() string {
	var b strings.Builder
	b.WriteString(documentHead)
	b.WriteString("| id | attempt | how | must be seen | on the host | carried by | note |\n| --- | --- | --- | --- | --- | --- | --- |\n")
	for _, c := range allChecks() {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", c.id, cell(c.attempt), code(c.script), c.seen(), cell(c.host), c.carriedBy(), cell(c.remark()))
	}
	return b.String()
}

func (c *check) seen() string {
	if c.refused {
		return "no start: " + cell(c.want)
	}
	return cell(strings.ReplaceAll(strings.ReplaceAll(c.want, "|", " or "), "\n", ", "))
}

func (c *check) carriedBy() string {
	switch {
	case c.absent != "":
		return "not applicable"
	case c.uncertain != "":
		return c.carried + ", " + c.uncertain + " on some machines"
	}
	return c.carried
}

func (c *check) remark() string {
	var all []string
	for _, s := range []string{c.absent, c.note} {
		if s != "" {
			all = append(all, s)
		}
	}
	if c.unsafe[0] != "" {
		all = append(all, "not tried without "+c.unsafe[0]+": "+c.unsafe[1])
	}
	if c.slow {
		all = append(all, "slow, so not tried without the layers that do not carry it")
	}
	if c.arch != "" {
		all = append(all, c.arch+" only")
	}
	return strings.Join(all, "; ")
}

func cell(s string) string { return strings.ReplaceAll(s, "|", "\\|") }

// code is a script on one line.
func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + cell(strings.Join(strings.Fields(s), " ")) + "`"
}

// TestChecksAreWrittenDown compares CHECKS.md with the tables, or writes it.
func TestChecksAreWrittenDown(t *testing.T) {
	const file, rows = "CHECKS.md", 90
	seen := map[string]bool{}
	for _, c := range allChecks() {
		if seen[c.id] {
			t.Errorf("two rows are called %s", c.id)
		}
		seen[c.id] = true
	}
	if len(seen) != rows {
		t.Errorf("%d rows, not %d", len(seen), rows)
	}
	if *update {
		if err := os.WriteFile(file, []byte(document()), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	b, err := os.ReadFile(file)
	if err != nil || string(b) != document() {
		t.Errorf("%s is not what the tables say: run go test ./sandbox -run TestChecks -update (%v)", file, err)
	}
}
