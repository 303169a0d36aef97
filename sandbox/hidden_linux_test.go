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

func TestRealPathIsWhereLinksLead(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file, link, dangling := dir+"/file", dir+"/link", dir+"/dangling"
	for _, err := range []error{os.WriteFile(file, nil, 0o600), os.Symlink("file", link), os.Symlink("nothing", dangling)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{file, link, dir + "/./link"} {
		if got, err := realPath(p); got != file || err != nil {
			t.Errorf("%s leads to %q, %v, want %s", p, got, err, file)
		}
	}
	for _, p := range []string{dangling, dir + "/none"} {
		if got, err := realPath(p); !os.IsNotExist(err) {
			t.Errorf("%s leads to %q, %v, want that it is not there", p, got, err)
		}
	}
}

// Programs write a secret anew by renaming another file over it.
func TestHiddenFileThatIsReplacedAllTheTimeIsFound(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	file := dir + "/secret"
	replace := func() error {
		if err := os.WriteFile(file+".new", nil, 0o600); err != nil {
			return err
		}
		return os.Rename(file+".new", file)
	}
	if err := replace(); err != nil {
		t.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				stopped <- nil
				return
			default:
			}
			if err := replace(); err != nil {
				stopped <- err
				return
			}
		}
	}()
	for range 50_000 {
		if real, there := resolveHidden(file); real != file || !there {
			t.Errorf("found %q, %v, want %s", real, there, file)
			break
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}
