package sandbox

import (
	"os"
	slashpath "path"

	"golang.org/x/sys/unix"
)

// secretsOfHome are the usual places of keys and credentials below a home.
func secretsOfHome() []string {
	return []string{
		".ssh", ".gnupg", ".password-store", ".local/share/keyrings", ".netrc", ".git-credentials", ".config/git/credentials",
		".aws", ".azure", ".config/gcloud", ".oci", ".kube", ".docker", ".config/containers", ".vault-token", ".terraform.d/credentials.tfrc.json",
		".npmrc", ".yarnrc.yml", ".pypirc", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".m2/settings.xml",
		".config/gh", ".config/glab-cli", ".config/hub", ".config/rclone", ".config/op", ".postern", ".config/postern", ".local/share/postern", ".local/state/postern",
	}
}

// hideable lists what no command may see, whether or not it exists.
func hideable(id *identity, more ...[]string) []string {
	paths := []string{"/run", "/var/run", "/var/lib/cloud", "/var/lib/kubelet", "/var/lib/postern", "/etc/postern"}
	for _, h := range []string{"/root", id.daemonHome, id.accountHome} {
		if !slashpath.IsAbs(h) {
			continue
		}
		for _, s := range secretsOfHome() {
			paths = append(paths, slashpath.Join(h, s))
		}
	}
	for _, m := range more {
		paths = append(paths, m...)
	}
	return paths
}

// hiddenPaths lists what no command may see and exists, with symbolic links
// resolved: a link would otherwise still lead to its target.
func hiddenPaths(id *identity, more ...[]string) []string {
	paths := hideable(id, more...)
	seen := map[string]bool{}
	var out []string
	for _, p := range paths {
		if real, there := resolveHidden(p); there && !seen[real] {
			seen[real] = true
			out = append(out, real)
		}
	}
	return out
}

// realPath is where a path leads, with all links followed, as the kernel finds it. That nothing is there is an error that
// os.IsNotExist knows, and no other is.
func realPath(path string) (string, error) {
	for range 1000 {
		real, same, err := tryRealPath(path)
		if err != nil || same {
			return real, err
		}
	}
	return "", &os.PathError{Op: "resolve", Path: path, Err: unix.EBUSY}
}

// tryRealPath also reports whether what was found is what is there: a file that is replaced meanwhile has a name that means nothing.
func tryRealPath(path string) (real string, same bool, err error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	real, err = os.Readlink("/proc/self/fd/" + itoa(fd))
	if err != nil || !slashpath.IsAbs(real) { // no /proc, or it cannot be reached from the root directory
		return "", false, &os.PathError{Op: "resolve", Path: path, Err: unix.EIO}
	}
	var opened, named unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		return "", false, &os.PathError{Op: "stat", Path: path, Err: unix.EIO}
	}
	err = unix.Lstat(real, &named)
	return real, err == nil && opened.Dev == named.Dev && opened.Ino == named.Ino, nil
}

// resolveHidden is where a hidden path leads, if it exists.
func resolveHidden(path string) (real string, there bool) {
	if _, err := os.Lstat(path); os.IsNotExist(err) {
		return "", false // most of them, at the price of one call
	}
	real, err := realPath(path)
	if os.IsNotExist(err) {
		return "", false
	}
	if err != nil {
		return slashpath.Clean(path), true // the init decides: closed to it means closed
	}
	return real, true
}
