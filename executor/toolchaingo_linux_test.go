//go:build toolchains

package executor

import (
	"runtime/debug"
	"strings"
	"testing"
)

// goModule is a module without dependencies, whose test needs two goroutines.
func goModule(b *bench) {
	version, _, _ := strings.Cut(strings.TrimPrefix(goVersion(), "go"), " ")
	b.file("greeter/go.mod", "module example.test/greeter\n\ngo "+version+"\n")
	b.file("greeter/main.go", `package main

import (
	"fmt"
	"os"
	"sync"
)

func greet(names ...string) map[string]string {
	var mu sync.Mutex
	var all sync.WaitGroup
	greetings := map[string]string{}
	for _, name := range names {
		all.Go(func() {
			mu.Lock()
			defer mu.Unlock()
			greetings[name] = "hello " + name
		})
	}
	all.Wait()
	return greetings
}

func main() { fmt.Println(greet(os.Args[1:]...)) }
`)
	b.file("greeter/main_test.go", `package main

import "testing"

func TestEverybodyIsGreeted(t *testing.T) {
	if got := greet("a", "b"); len(got) != 2 || got["b"] != "hello b" {
		t.Error(got)
	}
}
`)
}

// goVersion is that of the compiler of this test, which is the one in PATH.
func goVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	return info.GoVersion
}

func TestGoBuildsAndTestsOutsideARepository(t *testing.T) {
	b := newBench(t, "go", "git")
	goModule(b)
	b.env = []string{"CGO_ENABLED=0"}
	b.env = append(b.env, b.goCache())
	b.wants("cd greeter && go build -o greeter . && ./greeter world", "map[world:hello world]")
	if got := b.run("cd greeter && go test ./..."); !strings.HasPrefix(got, "ok  \texample.test/greeter\t") {
		t.Errorf("go test printed %q", got)
	}
	// By default its caches are in HOME, and gone with the command.
	b.env = b.env[:1]
	b.wants("go env GOCACHE GOMODCACHE GOPATH", "/run/postern/home/.cache/go-build\n/run/postern/home/go/pkg/mod\n/run/postern/home/go")
}

func TestGoFindsARaceInside(t *testing.T) {
	b := newBench(t, "go", "gcc")
	goModule(b)
	b.env = []string{b.goCache()}
	if got := b.run("cd greeter && go test -race ./..."); !strings.HasPrefix(got, "ok  \texample.test/greeter\t") {
		t.Errorf("go test -race printed %q", got)
	}
	b.file("greeter/race_test.go", `package main

import "testing"

func TestRace(t *testing.T) {
	n, done := 0, make(chan bool)
	go func() { n++; close(done) }()
	n++
	<-done
	t.Log(n)
}
`)
	if e := b.try("cd greeter && go test -race -run TestRace ."); e.code != 1 || !strings.Contains(e.stdout, "WARNING: DATA RACE") {
		t.Errorf("with a race: %+v", e)
	}
}

// goCache keeps what is built in the workspace, from one command to the next.
func (b *bench) goCache() string { return "GOCACHE=" + b.workspace + "/.cache/go-build" }

// The build's version stamp asks git, which must not call the repository dubious.
func TestGoStampsTheVersionFromAProtectedRepository(t *testing.T) {
	b := newBench(t, "go", "git")
	b.file("greeter/go.mod", "module example.test/greeter\n")
	b.file("greeter/main.go", "package main\n\nfunc main() { println(\"hello\") }\n")
	b.repository(".")
	revision := b.run("git rev-parse HEAD")
	b.env = []string{"CGO_ENABLED=0"}
	got := b.run("cd greeter && go build -o /tmp/greeter . && go version -m /tmp/greeter")
	if !strings.Contains(got, "vcs.revision="+revision+"\n") || !strings.Contains(got, "vcs.modified=false") {
		t.Errorf("built from %s: %s", revision, got)
	}
}

// Without a network there is no module to download, and the go command says so at once.
func TestGoNamesTheModuleThatItCannotDownload(t *testing.T) {
	b := newBench(t, "go")
	goModule(b)
	e := b.try("cd greeter && go get example.test/missing@v1.0.0")
	if e.code != 1 || !strings.Contains(e.stderr, "example.test/missing") {
		t.Errorf("go get: %+v", e)
	}
}
