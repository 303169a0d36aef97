//go:build linux

package main

import "time"

// The two paths of a measure, and the delay that the targets of the second are about.
const (
	loopback    = "loopback"
	delayed     = "delayed"
	targetDelay = 20 * time.Millisecond
)

// target says what a row must show, and what is aimed at: of the ratio to a peer, or of the figure itself where
// there is no peer.
type target struct {
	measure, path, quantity, subject, peer string

	Must    float64 `json:"must"`
	Aim     float64 `json:"aim"`
	AtLeast bool    `json:"at_least"` // else at most
}

var targets = []target{
	{coldExec, loopback, "time", postern, sshDefault, 0.10, 0.03, false},
	{coldExec, loopback, "time", postern, sshCurve, 0.15, 0.06, false},
	{coldExec, delayed, "time", postern, sshDefault, 0.15, 0.10, false},
	{warmExec, loopback, "time", posternLibrary, sshDefault, 0.20, 0.08, false},
	{warmExec, loopback, "time", posternLibrary, sshTuned, 0.7, 0.3, false},
	{warmExec, delayed, "time", posternLibrary, sshDefault, 0.45, 0.36, false},
	{echo, loopback, "p50", postern, sshDefault, 1.0, 0.7, false},
	{bulkDown, loopback, "rate", postern, sshDefault, 1.2, 1.5, true},
	{bulkUp, loopback, "rate", postern, sshDefault, 1.2, 1.5, true},
	{bulkDown, loopback, "rate", postern, sshGCM, 1.0, 1.2, true},
	{bulkUp, loopback, "rate", postern, sshGCM, 1.0, 1.2, true},
	{bulkDown, loopback, "CPU in the middle", postern, "", 8, 6, false},
	{bulkUp, loopback, "CPU in the middle", postern, "", 8, 6, false},
	{idle, loopback, "memory", postern, "", 80, 64, false},
	{idle, loopback, "goroutines", postern, "", 4, 3, false},
	{sandboxStart, loopback, "time", posternSandbox, forkExec, 2.0, 1.6, false},
}

// targetOf is nil where nothing was promised. The idle measures are one each for a number of executors.
func targetOf(measure, path, quantity, subject, peer string, delay time.Duration) *target {
	if path == delayed && delay != targetDelay {
		return nil
	}
	for _, t := range targets {
		if t.measure == measure && t.path == path && t.quantity == quantity && t.subject == subject && t.peer == peer {
			return &t
		}
	}
	return nil
}

// meets is judged by the figure as it is measured, not as it is printed.
func (t *target) meets(figure, bound float64) bool {
	if t.AtLeast {
		return figure >= bound
	}
	return figure <= bound
}
