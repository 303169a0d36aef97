package keys

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// TestFullDiskLeavesNoKeyFile writes to a real full file system, which only root can make.
func TestFullDiskLeavesNoKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	// Elsewhere nobody is to see the mount: sandboxes that are ready notice any. The thread ends with the test.
	runtime.LockOSThread()
	err := syscall.Unshare(syscall.CLONE_NEWNS)
	if err == nil {
		err = syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	}
	if err == nil {
		err = syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4k,mode=0700")
	}
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skip("mounting a tmpfs needs root and CAP_SYS_ADMIN")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(filepath.Join(dir, "key"), generate(t, Client)); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("WriteFile on a full disk: %v, want ENOSPC", err)
	}
	if err := createDirectly(filepath.Join(dir, "key"), []byte("secret")); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("createDirectly on a full disk: %v, want ENOSPC", err)
	}
	if names := entries(t, dir); len(names) != 1 {
		t.Errorf("folder holds %q, want the filler alone", names)
	}
}

// TestPipeInPlaceOfKeyFileDoesNotBlock pins that opening does not wait for a writer.
func TestPipeInPlaceOfKeyFileDoesNotBlock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "key")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadFile(path, Client); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("ReadFile of a pipe: %v, want an error that says so", err)
	}
	if _, err := WatchFile(path, ParseAuthorizedClients); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("WatchFile of a pipe: %v, want an error that says so", err)
	}
}
