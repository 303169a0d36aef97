package sandbox

import (
	"os"

	"golang.org/x/sys/unix"
)

// systemDirs are what a minimal view keeps of the machine's top level: what programs are
// made of, and what the view replaces anyway.
var systemDirs = map[string]bool{
	"bin": true, "sbin": true, "lib": true, "lib32": true, "lib64": true, "libx32": true, "usr": true, "etc": true,
	"dev": true, "proc": true, "sys": true, "run": true, "tmp": true,
	"nix": true, // all programs of some systems live there
}

// reduce covers every other directory of the top level with an empty one, in which the
// roots then find their places.
func (v *view) reduce() error {
	entries, err := os.ReadDir("/")
	if err != nil {
		return fail("view", "/", err)
	}
	for _, e := range entries {
		if systemDirs[e.Name()] || !e.IsDir() {
			continue // a link or a file at the top level says nothing
		}
		dir := "/" + e.Name()
		if err := v.tmpfs(dir, noSuid|noDev|noExec, "mode=0755", "size=256k"); err != nil {
			return fail("view", dir, err)
		}
		v.seal = append(v.seal, dir)
		if dir == "/var" {
			for _, name := range []string{"/var/tmp", "/var/lib", "/var/cache", "/var/log"} {
				if err := unix.Mkdir(name, 0o755); err != nil {
					return fail("view", name, err)
				}
			}
		}
	}
	return nil
}
