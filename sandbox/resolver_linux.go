package sandbox

import (
	"errors"
	"os"
	slashpath "path"
	"strings"

	"golang.org/x/sys/unix"
)

const resolverFile = "/etc/resolv.conf"

// noNameServer is the resolver's file where nobody can be asked. The address is one for documentation (RFC 5737) to which there
// is no route: a look-up fails at once, and is counted by the kernel as what it is. Without a name server the C
// library would ask the command's own loopback.
const noNameServer = "# This sandbox reaches no name server.\nnameserver 192.0.2.53\n"

// resolver is what the view has for resolverFile.
type resolver struct {
	path string // in /run, which is made anew; empty: resolverFile is a plain file
	text string
	keep bool // the plain file is right as it is
}

// resolverFor looks while the machine's /run is still there.
func resolverFor(mode NetworkMode) resolver {
	r := resolver{path: resolverTarget(), text: noNameServer}
	if mode == NetworkHost {
		r.keep = true
		text, err := os.ReadFile(resolverFile)
		if err == nil {
			r.text = string(text)
		}
	}
	return r
}

// show puts the file in its place, if there is one for it.
func (v *view) show(r resolver) error {
	switch {
	case r.path != "":
		_ = os.MkdirAll(slashpath.Dir(r.path), 0o755)
		_ = os.WriteFile(r.path, []byte(r.text), 0o644)
		return nil
	case r.keep:
		return nil
	}
	file := slashpath.Join(helperDir, "resolv.conf")
	if err := os.WriteFile(file, []byte(r.text), 0o644); err != nil {
		return fail("resolver", file, err)
	}
	if err := v.bind(file, resolverFile, readOnlyAttr|noSuid|noDev|noExec); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ELOOP) {
		return fail("resolver", resolverFile, err)
	}
	return nil
}

// resolverTarget is the file in /run that resolverFile stands for, if any.
func resolverTarget() string {
	link, err := os.Readlink(resolverFile)
	if err != nil {
		return ""
	}
	if !slashpath.IsAbs(link) {
		link = slashpath.Join("/etc", link)
	}
	if rest, ok := strings.CutPrefix(link, "/var/run/"); ok {
		link = "/run/" + rest
	}
	if !strings.HasPrefix(link, "/run/") {
		return ""
	}
	return link
}
