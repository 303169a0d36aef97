//go:build linux && race

package main

// The race detector makes everything five times as slow.
const (
	leakSequential = 150
	leakParallel   = 50
)

// raceDetector needs memory of its own.
const raceDetector = true
