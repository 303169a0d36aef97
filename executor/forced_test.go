package executor

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestFileIsFoundOutThroughEveryLink(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(base, name) }
	for _, dir := range []string{"open/sub", "open2", "safe"} {
		if err := os.MkdirAll(at(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"open/tool", "safe/tool", "open2/tool"} {
		if err := os.WriteFile(at(file), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for link, target := range map[string]string{
		"in": at("open/tool"), "relative": "open/tool", "folder": "open", "out": at("safe/tool"), "up": "safe/../open/tool",
		"open/out": at("safe/tool"), "through": at("open/out"), "twice": "in", "loop": "loop", "open/loop": "loop",
		"parent": "open/sub/../../safe/tool", "gone": "open/missing", "nowhere": "missing/x",
	} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	for file, want := range map[string]bool{
		"open": true, "open/tool": true, "open/missing": true, "in": true, "relative": true, "folder/tool": true, "up": true, "open/out": true,
		"through": true, // it ends outside, by a link that lies inside
		"twice":   true, "open/loop": true, "parent": true, "gone": true,
		"safe/tool": false, "open2/tool": false, "out": false, "missing": false, "nowhere": false,
	} {
		if got, err := leadsThrough(at(file), []string{at("other"), at("open")}); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", file, got, err, want)
		}
	}
	if got, err := leadsThrough(at("absent/deep/tool"), []string{at("absent/deep")}); err != nil || !got {
		t.Errorf("a file in a folder that does not exist yet: %v, %v", got, err)
	}
	if got, err := leadsThrough(at("loop"), []string{at("open")}); err == nil {
		t.Errorf("a loop of links: %v without an error", got)
	}
}

// printf is a program of the machine that prints its words.
func printf(t *testing.T) string {
	t.Helper()
	file, err := exec.LookPath("printf")
	if err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		t.Skip("no printf: ", err)
	}
	if filepath.Base(file) != "printf" {
		t.Skip("printf is another program: ", file)
	}
	return file
}

// output is what a command that must start prints.
func output(t *testing.T, b *Local, p wire.ExecParams) string {
	t.Helper()
	h, err := b.Start(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	var out []byte
	for e, err := range h.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk != nil {
			out = append(out, e.Chunk.Data...)
		}
	}
	return string(out)
}

func forcedTo(t *testing.T, b *Local, options string) *Local {
	return b.As(Caller{Principal: "p", Key: "k", Rights: rightsOf(t, options)})
}

func TestForcedCommandRunsTheFileOfTheLine(t *testing.T) {
	b, workspace := newSandboxed(t)
	file := printf(t)
	if err := os.WriteFile(filepath.Join(workspace, "printf"), []byte("#!/bin/sh\necho wrong\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	forced := forcedTo(t, b, `command="`+file+` %s. *"`)
	for _, first := range []string{file, "printf"} {
		if got := output(t, forced, wire.ExecParams{Argv: []string{first, "%s.", "a", "b"}}); got != "a.b." {
			t.Errorf("%s printed %q", first, got)
		}
	}
	for _, argv := range [][]string{{"./printf", "%s."}, {filepath.Join(workspace, "printf"), "%s."}, {"sh", "-c", "id"}, {file, "%d."}} {
		if _, err := forced.Start(t.Context(), wire.ExecParams{Argv: argv}); wire.CodeOf(err) != wire.CodePolicy {
			t.Errorf("%q: %v", argv, err)
		}
	}
}

func TestForcedCommandThatItsClientCouldReplaceIsRefused(t *testing.T) {
	b, workspace := newSandboxed(t)
	link := filepath.Join(workspace, "tool")
	outer := filepath.Join(t.TempDir(), "tool")
	for at, target := range map[string]string{link: printf(t), outer: link} {
		if err := os.Symlink(target, at); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{link, outer} {
		narrow := forcedTo(t, b, `command="`+file+` *"`)
		for name, p := range map[string]wire.ExecParams{
			"as it is": {}, "with less to write": {Sandbox: wire.SandboxReadOnly}, "with another workspace": {Roots: []string{workspace + "/sub"}},
		} {
			p.Argv = []string{file, "x"}
			if _, err := narrow.Start(t.Context(), p); wire.CodeOf(err) != wire.CodePolicy {
				t.Errorf("%s, %s: %v", file, name, err)
			}
		}
	}
	// Where the line may write nothing there is nobody to replace it.
	readOnly := rightsOf(t, `sandbox<=read-only,command="`+link+` *"`)
	if got := output(t, b.As(Caller{Principal: "p", Key: "k", Rights: readOnly}), wire.ExecParams{Argv: []string{"tool", "x"}}); got != "x" {
		t.Errorf("it printed %q", got)
	}
}
