package executor

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// force makes of the request one of the commands that the line lists. Its refusals do not repeat what was asked for.
func force(commands []keys.Command, most Policy, p wire.ExecParams) (wire.ExecParams, error) {
	argv, ok := forcedArgv(commands, p.Argv)
	if !ok {
		return p, wire.Errorf(wire.CodePolicy, "this key may run only the commands that its line in authorized_clients lists, word for word")
	}
	if p.Arg0 != "" {
		return p, wire.Errorf(wire.CodePolicy, "this key may not choose argv[0] of its commands")
	}
	home := ""
	if len(most.Roots) > 0 {
		home = most.Roots[0]
	}
	if p.Dir != "" && p.Dir != home {
		return p, wire.Errorf(wire.CodePolicy, "this key may not choose the working directory of its commands: leave it out")
	}
	// What this start asks for does not count: an earlier one may have asked for more, and written there.
	if most.Sandbox > wire.SandboxReadOnly {
		switch replaceable, err := leadsThrough(argv[0], most.Roots); {
		case err != nil:
			return p, wire.Errorf(wire.CodePolicy, "the file of this command cannot be found out for certain: the executor's owner must give its path without links")
		case replaceable:
			return p, wire.Errorf(wire.CodePolicy, "the file of this command lies in a workspace, where this key could have replaced it: the executor's owner must move it")
		}
	}
	p.Argv, p.Dir = argv, home // also where the workspaces that it asks for would make it another one
	return p, nil
}

// forcedArgv is what runs for the words that a client wrote: of the first command that they match, its file and not the client's
// first word, so that neither PATH nor another spelling decides.
func forcedArgv(commands []keys.Command, asked []string) ([]string, bool) {
	for _, c := range commands {
		n := len(c.Words)
		if n == 0 || len(asked) < n || len(asked) > n && !c.More {
			continue
		}
		file := c.Words[0]
		if (asked[0] == file || asked[0] == path.Base(file)) && slices.Equal(asked[1:n], c.Words[1:]) {
			return append([]string{file}, asked[1:]...), true
		}
	}
	return nil, false
}

// maxLinks is how many symbolic links the way to a file may have, as in the kernel.
const maxLinks = 40

// leadsThrough reports whether file, or anything on the way that its symbolic links take, lies in one of the folders: who may
// write these could have put something else there. A file that does not exist lies where its name says.
func leadsThrough(file string, folders []string) (bool, error) {
	in := func(p string) bool {
		return slices.ContainsFunc(folders, func(folder string) bool { return within(p, folder) })
	}
	if in(file) {
		return true, nil
	}
	at, left := "/", strings.Split(file, "/")
	for links := 0; len(left) > 0; {
		name := left[0]
		left = left[1:]
		next := path.Join(at, name) // at has no links, so that .. is its parent
		if in(next) {
			return true, nil
		}
		info, err := os.Lstat(next)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return false, nil
		case err != nil:
			return false, err
		case info.Mode()&fs.ModeSymlink == 0:
			at = next
			continue
		}
		if links++; links > maxLinks {
			return false, errors.New("too many symbolic links")
		}
		target, err := os.Readlink(next)
		if err != nil {
			return false, err
		}
		if path.IsAbs(target) {
			at = "/"
		}
		left = append(strings.Split(target, "/"), left...)
	}
	return false, nil
}
