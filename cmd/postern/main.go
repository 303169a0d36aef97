// Command postern is the relay, the executor and the client in one binary. README.md has the
// quick start; `postern --help` lists the verbs, one file each (cmd_VERB.go). node.go starts a
// relay and an executor for the verbs that need them, state.go and home.go know the files.
//
// The words a command prints are its own: postern writes to stderr, but for the few lines that
// are the purpose of a verb.
package main

import (
	"os"

	"github.com/postern-relay/postern/sandbox"
)

func main() {
	sandbox.Init() // a sandbox's own processes are this binary too, and end here
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
