package sandbox

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

const denialsDoc = "DENIALS.md"

func (k DenialKind) text() string {
	return [...]string{DenialFilesystem: "filesystem", DenialNetwork: "network", DenialSyscall: "syscall", DenialLimit: "limit"}[k]
}

func (e Evidence) text() string {
	return [...]string{EvidenceKernel: "kernel", EvidencePolicy: "policy", EvidenceWords: "maybe"}[e]
}

// denialStage is the folders of the cases: a workspace, one outside, and a home with a key.
type denialStage struct{ base, ws, out, bin string }

func newDenialStage(t *testing.T) denialStage {
	t.Helper()
	base := checksBase(t)
	s := denialStage{base: base, ws: filepath.Join(base, "ws"), out: filepath.Join(base, "out"), bin: filepath.Join(base, "bin")}
	for _, dir := range []string{"ws/.git/hooks", "ws/ro", "out", "home/.ssh"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{
		"ws/noexec": 0o644, "ws/locked": 0, "out/f": 0o666, "home/.ssh/id": 0o600, "ws/.git/HEAD": 0o644, "ws/.git/config": 0o644,
	} {
		text := "#!/bin/sh\n"
		switch name {
		case "ws/.git/HEAD":
			text = "ref: refs/heads/main\n"
		case "ws/.git/config":
			text = "[core]\n"
		}
		if err := os.WriteFile(filepath.Join(base, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(base, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"ws/.git/objects", "ws/.git/refs"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(base, "out"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(base, "ws/ro"), 0o555); err != nil {
		t.Fatal(err)
	}
	return s
}

// run runs a case and returns what is said of it, as the table writes it, and whether it failed.
func (s denialStage) run(t *testing.T, l *Launcher, c denialCase) (said []string, failed bool) {
	t.Helper()
	p := Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}, HiddenPaths: []string{filepath.Join(s.base, "home/.ssh")}}
	if c.policy != nil {
		c.policy(&p)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	proc, err := l.Start(noContext, p, Command{
		Argv: []string{"/bin/sh", "-c", c.script}, Dir: s.ws, Stdout: w, Stderr: w,
		Env: []string{"PATH=" + s.bin + ":" + defaultPath, "LC_ALL=C", "B=" + s.base, "OUT=" + s.out, "P=" + probeName},
	})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	output, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	res, err := proc.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range proc.Denials(output) {
		subject := strings.NewReplacer(s.out, "$OUT", s.base, "$B").Replace(d.Subject)
		said = append(said, fmt.Sprintf("%s %s %s %s", d.Kind.text(), d.Op, subject, d.Evidence.text()))
		if d.Rule == "" || d.Count < 1 {
			t.Errorf("%s: a denial without rule or count: %+v", c.id, d)
		}
	}
	if t.Failed() {
		t.Logf("%s printed %q", c.id, output)
	}
	return said, res.ExitCode != 0 || res.Signal != 0
}

// like compares what is said with the table's pattern, in which * stands for what differs between machines.
func like(pattern, said string) bool {
	ok, err := path.Match(strings.ReplaceAll(pattern, "/", "\x01"), strings.ReplaceAll(said, "/", "\x01"))
	return ok && err == nil
}

func TestDenialsAreProvenAndNothingElseIsSaid(t *testing.T) {
	for _, tool := range []string{"python3", "curl", "git", "perl", "unshare", "dmesg", "nsenter", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs " + tool)
		}
	}
	l := newLauncher(t, Options{})
	s := newDenialStage(t)
	for _, c := range denialCases {
		said, failed := s.run(t, l, c)
		if !failed {
			t.Errorf("%s: the command succeeds, so it shows nothing: %s", c.id, c.script)
		}
		found := false
		for _, d := range said {
			found = found || c.want != "" && like(c.want, d)
		}
		switch {
		case c.denied && c.want != "" && !found:
			t.Errorf("%s: said %q, want %q: %s", c.id, said, c.want, c.script)
		case c.want == "" && len(said) > 0:
			t.Errorf("%s: said %q, want nothing: %s", c.id, said, c.script)
		}
	}
}

func TestNothingIsSaidOfACommandThatSucceeds(t *testing.T) {
	l := newLauncher(t, Options{})
	s := newDenialStage(t)
	c := denialCase{script: `echo "touch: cannot touch '/etc/x': Read-only file system"`}
	proc, err := l.Start(noContext, Policy{Mode: WorkspaceWrite, Roots: []string{s.ws}}, Command{Argv: []string{"/bin/sh", "-c", c.script}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proc.Wait(); err != nil {
		t.Fatal(err)
	}
	if d := proc.Denials(nil); len(d) > 0 {
		t.Errorf("said %+v", d)
	}
}

// What a command prints is its own: it can make the sandbox say things of itself, and no more than a little.
func FuzzComplaintsOfAnyOutput(f *testing.F) {
	for _, c := range denialCases {
		f.Add([]byte(c.script))
	}
	f.Add([]byte("touch: cannot touch '/etc/x': Read-only file system\n"))
	f.Add([]byte("\x1b[31m[Errno 30] Read-only file system: '/usr/x'\x1b[0m"))
	s := &setup{pieces: []piece{{path: "/w"}, {path: "/w/.git", readOnly: true}}, hidden: []string{"/h"}, minimal: true}
	f.Fuzz(func(t *testing.T, output []byte) {
		c := complaints{setup: s, dir: "/w"}
		found := c.read(output)
		if len(found) > maxDenials+1 {
			t.Errorf("%d denials", len(found))
		}
		for _, d := range found {
			if d.Kind == 0 || d.Evidence == 0 || d.Op == "" || d.Rule == "" || d.Count < 1 {
				t.Errorf("half a denial: %+v", d)
			}
			if d.Evidence == EvidencePolicy && !bytes.Contains(output, []byte(d.Subject)) && bytes.IndexByte(output, 0x1b) < 0 {
				t.Errorf("%q is not in the output", d.Subject)
			}
		}
	})
}

func denialsDocument() string {
	var b strings.Builder
	var stopped, found, maybe, alarms, others int
	var rows strings.Builder
	for _, c := range denialCases {
		said := "nothing"
		switch {
		case c.want != "":
			said = c.want
		case c.denied:
			said = "**nothing**"
		}
		if c.denied {
			stopped++
			if c.want != "" {
				found++
			}
			if strings.HasSuffix(c.want, "maybe") {
				maybe++
			}
		} else {
			others++
			if c.want != "" {
				alarms++
			}
		}
		truth := "no"
		if c.denied {
			truth = "yes"
		}
		fmt.Fprintf(&rows, "| %s | %s | %s | %s | %s |\n", c.id, code(c.script), truth, cell(said), cell(c.note))
	}
	fmt.Fprintf(&b, `# What is said of the sandbox when a command fails

This file is written from `+"`denials_table_linux_test.go`"+`: change that, then run `+"`go test ./sandbox -run TestDenials -update`"+`.
The test runs every row and fails where another thing is said than here.

%d of %d commands that the sandbox stopped are found, %d of them as a maybe; of %d that failed by themselves %d are blamed on it.
*Stopped* says whether the sandbox is why the command fails. *Said* is the kind, what was to be done, to what, and how that is known:
by the *kernel* (it reported the refused call, or counted packets without a route, or a limit), by the *policy* (the command's own error
message, and the policy denies just that), or *maybe* (the words alone). `+"`*`"+` stands for what differs between machines. `+"`OUT`"+` is a
folder beside the workspace, in which the commands begin; `+"`B`"+` is what holds both.

| case | command | stopped | said | note |
| --- | --- | --- | --- | --- |
`, found, stopped, maybe, others, alarms)
	return b.String() + rows.String()
}

// The last call of a command is counted by the time of its end.
func TestRefusedCallsAreCountedBeforeTheCommandEnds(t *testing.T) {
	l := newLauncher(t, Options{})
	root, file := probe(t)
	for range 50 {
		proc, err := l.Start(noContext, Policy{Mode: ReadOnly, Roots: []string{root}}, Command{Argv: []string{file, "mount"}, Arg0: probeName})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := proc.Wait(); err != nil {
			t.Fatal(err)
		}
		if all := proc.Denials(nil); len(all) != 1 || all[0].Op != "mount" || all[0].Count != 1 {
			t.Fatalf("said %+v, want one mount", all)
		}
	}
}

func TestDenialsAreWrittenDown(t *testing.T) {
	want := denialsDocument()
	if *update {
		if err := os.WriteFile(denialsDoc, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(denialsDoc); err != nil || string(got) != want {
		t.Errorf("%s is not what the table says: run go test ./sandbox -run TestDenials -update (%v)", denialsDoc, err)
	}
}
