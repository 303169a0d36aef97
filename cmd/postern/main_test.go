package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/postern-relay/postern/sandbox"
)

// The test binary is postern too, and a sandbox's own processes: nothing is built by a test.
func TestMain(m *testing.M) {
	sandbox.Init()
	testscript.Main(m, map[string]func(){"postern": main})
}
