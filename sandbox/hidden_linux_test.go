package sandbox

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestHiddenPathsCannotBeReadOrMoved(t *testing.T) {
	dir := workspace(t)
	for _, d := range []string{"state", "ws", "ws/secret"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"state/key", "ws/secret/key", "ws/token"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("SECRET"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(dir, "state"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	l := newLauncher(t, Options{HiddenPaths: []string{filepath.Join(dir, "link"), filepath.Join(dir, "missing")}})
	ws := filepath.Join(dir, "ws")
	// the parent is a root too, so that the way to the hidden state exists at all
	p := Policy{Mode: WorkspaceWrite, Roots: []string{dir, ws}, HiddenPaths: []string{ws + "/secret", ws + "/token"}}
	out := runShell(t, l, p, "cd "+dir+"; cat state/key link/key ws/secret/key ws/token; ls state ws/secret; mv state s2; mv ws/token t2; chmod 755 state; ls /run; echo end")
	if strings.Contains(out.stdout, "SECRET") || out.stdout != "postern\nend\n" {
		t.Errorf("hidden paths leak: %q", out.stdout)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "state/key")); err != nil || string(b) != "SECRET" {
		t.Errorf("hidden file changed on the host: %q, %v", b, err)
	}
}
