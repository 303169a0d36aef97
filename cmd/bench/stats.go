//go:build linux

package main

import (
	"math"
	"slices"
)

// spread is the middle of some values, and where eight of ten lie.
type spread struct {
	Median float64 `json:"median"`
	P10    float64 `json:"p10"`
	P90    float64 `json:"p90"`
}

// quantile is the value below which a share q of all values lies, interpolated between the two nearest. NaN
// without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below == len(sorted)-1 {
		return sorted[below]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

func spreadOf(values []float64) spread {
	return spread{Median: quantile(values, 0.5), P10: quantile(values, 0.1), P90: quantile(values, 0.9)}
}

// ratios divides round by round: what disturbed a whole round is in both figures.
func ratios(of, by []float64) []float64 {
	n := min(len(of), len(by))
	all := make([]float64, 0, n)
	for i := range n {
		all = append(all, of[i]/by[i])
	}
	return all
}
