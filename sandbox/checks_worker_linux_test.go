package sandbox

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// worker is a process that runs all checks as one identity, with at most one layer
// left out, and writes down what it saw.
type worker struct {
	name, without string
	uid           int
	failures      map[string]string // by id: what was seen instead
}

// checksBase makes a folder that commands can see and reach, with the probe in it and
// a set-uid root copy.
func checksBase(t *testing.T) string {
	t.Helper()
	dir := outsideTmp(t)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	_, file := probe(t)
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for sub, mode := range map[string]os.FileMode{"bin": 0o755, "setuid": 0o755 | os.ModeSetuid} {
		path := filepath.Join(dir, sub, probeName)
		err := errors.Join(os.Mkdir(filepath.Join(dir, sub), 0o755), os.WriteFile(path, program, 0o755), os.Chmod(path, mode))
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run starts the worker and waits for what it wrote down.
func (w *worker) run(ctx context.Context, base string) error {
	dir := filepath.Join(base, w.name)
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, w.uid, -1)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(base, "bin", probeName))
	cmd.Args = []string{"sandbox.test", "-test.run=^TestChecks$", "-test.timeout=5m"}
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + defaultPath, "HOME=" + dir, "GOMAXPROCS=2", checksKey + "=" + dir, withoutKey + "=" + w.without, secretKey + "=SECRET"}
	if w.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(w.uid), Gid: uint32(w.uid)}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	b, err := os.ReadFile(filepath.Join(dir, "failures"))
	if err != nil {
		return err
	}
	return json.Unmarshal(b, &w.failures)
}

// runWorker is the worker's own side.
func runWorker(t *testing.T, dir string) {
	// a descriptor that a careless daemon would pass on
	leak, err := unix.Open("/etc/passwd", unix.O_RDONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(leak)
	l := newLauncher(t, Options{WarmPerPolicy: -1})
	without := os.Getenv(withoutKey)
	failures := map[string]string{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	turns := make(chan struct{}, 3)
	for _, c := range allChecks() {
		if c.impossible(os.Getuid()) != "" || c.spared(without) {
			continue
		}
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if err := c.run(t, l, dir); err != nil {
				mu.Lock()
				failures[c.id] = err.Error()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	b, err := json.Marshal(failures)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "failures"), b, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
