//go:build linux

package main

import (
	"context"
	"slices"
	"time"
)

// The sides, as the report calls them.
const (
	postern        = "postern"
	posternLibrary = "postern, library"
	posternAgent   = "postern, agent"
	posternSandbox = "sandbox, made ahead"
	forkExec       = "fork and exec"
	sshDefault     = "ssh"
	sshCurve       = "ssh curve25519"
	sshGCM         = "ssh aes128-gcm"
	sshTuned       = "ssh tuned"
)

// The measures, as the report and -only call them.
const (
	coldExec     = "cold exec"
	warmExec     = "warm exec"
	echo         = "echo"
	keystroke    = "keystroke"
	beside       = "echo beside bulk"
	parallel     = "100 execs"
	bulkDown     = "bulk down"
	bulkUp       = "bulk up"
	resume       = "resume"
	idle         = "idle"
	sandboxStart = "sandbox start"
)

// noMeasure is what -only calls none of them.
const noMeasure = "none"

// measureNames are all of them, in the order of the report.
var measureNames = []string{coldExec, warmExec, echo, keystroke, beside, parallel, bulkDown, bulkUp, resume, sandboxStart, idle}

// path is the sides of one path, all up.
type path struct {
	name    string // loopback or delayed
	delay   time.Duration
	postern *posternSite
	agent   bool       // the product's client can keep a connection in the background
	ssh     []*sshSite // may be empty
}

// peers are those of some names, as far as they are there.
func (p *path) peers(names ...string) (found []*sshSite) {
	for _, s := range p.ssh {
		if slices.Contains(names, s.name) {
			found = append(found, s)
		}
	}
	return found
}

// pathMeasure is one that is taken between the sides of a path.
type pathMeasure struct {
	name  string
	build func(context.Context, *bench, *path) (*measure, error)
}

// onPath are the measures that are taken on both paths.
var onPath = []pathMeasure{
	{coldExec, measureCold},
	{warmExec, measureWarm},
	{echo, measureEcho},
	{keystroke, measureKeystroke},
	{beside, measureBeside},
	{parallel, measureParallel},
	{bulkDown, measureDown},
	{bulkUp, measureUp},
}

// once are those that have a path of their own, or none.
var once = []struct {
	name string
	take func(context.Context, *bench) error
}{
	{resume, takeResume},
	{sandboxStart, takeSandbox},
	{idle, takeIdle},
}
