package sandbox

import (
	"slices"
	"strings"
)

// DefaultProtectedNames are the protected names of a policy that names none.
func DefaultProtectedNames() []string { return slices.Clone(defaultProtected) }

// Protects reports whether a path below a root belongs to one of the names that are
// protected at that root. Neither follows links: a root has none.
func Protects(root, path string, names []string) bool {
	rest, below := strings.CutPrefix(path, strings.TrimSuffix(root, "/")+"/")
	if !below {
		return false
	}
	first, _, _ := strings.Cut(rest, "/")
	return slices.Contains(names, first)
}
