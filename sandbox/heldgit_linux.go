package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// A protected .git that does not exist is held by an empty directory. git walks past one, but the go command takes it for a
// repository, asks git about it and fails. Told not to stamp what it builds it does not look.

const noStamps = "GOFLAGS=-buildvcs=false"

// holdsGit tells whether the command finds an empty .git in a root.
func holdsGit(p Policy) bool {
	if p.Mode != WorkspaceWrite || p.ProtectedNames != nil && !slices.Contains(p.ProtectedNames, ".git") {
		return false
	}
	return slices.ContainsFunc(p.Roots, func(root string) bool {
		f, err := os.Open(filepath.Join(root, ".git"))
		if err != nil {
			return os.IsNotExist(err) // it is going to be held
		}
		defer f.Close()
		names, _ := f.Readdirnames(1)
		info, err := f.Stat()
		return err == nil && info.IsDir() && len(names) == 0
	})
}

// withoutStamps tells the go command, unless it is told something else.
func withoutStamps(env []string) []string {
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "GOFLAGS=") }) {
		return env
	}
	return append(env, noStamps)
}
