//go:build linux && race

package sandbox

// raceDetector: its own memory, of which every process of the test binary has terabytes,
// is over any RLIMIT_DATA from the start, so that the init may die of the next byte.
const raceDetector = true
