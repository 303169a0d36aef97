//go:build linux

package main

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestQuantileInterpolatesBetweenNeighbours(t *testing.T) {
	for _, test := range []struct {
		values []float64
		q      float64
		want   float64
	}{
		{[]float64{7}, 0.5, 7},
		{[]float64{7}, 0.99, 7},
		{[]float64{3, 1, 2}, 0.5, 2},
		{[]float64{4, 1, 3, 2}, 0.5, 2.5},
		{[]float64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, 0.1, 10},
		{[]float64{0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100}, 0.9, 90},
		{[]float64{1, 2}, 0, 1},
		{[]float64{1, 2}, 1, 2},
	} {
		if got := quantile(test.values, test.q); math.Abs(got-test.want) > 1e-9 {
			t.Errorf("quantile(%v, %v) = %v, want %v", test.values, test.q, got, test.want)
		}
	}
	if got := quantile(nil, 0.5); !math.IsNaN(got) {
		t.Errorf("quantile of nothing = %v, want NaN", got)
	}
}

func TestQuantileLeavesItsValuesAsTheyAre(t *testing.T) {
	values := []float64{3, 1, 2}
	quantile(values, 0.5)
	if !slices.Equal(values, []float64{3, 1, 2}) {
		t.Errorf("the values are %v now", values)
	}
}

func TestSpreadIsOrderedAndWithinTheValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e9, 1e9), 1, 50).Draw(t, "values")
		s := spreadOf(values)
		if !(slices.Min(values) <= s.P10 && s.P10 <= s.Median && s.Median <= s.P90 && s.P90 <= slices.Max(values)) {
			t.Fatalf("spread of %v is %+v", values, s)
		}
	})
}

// A round that was slow for both sides alike does not show in the ratio.
func TestRatiosAreTakenRoundByRound(t *testing.T) {
	if got := ratios([]float64{1, 100, 3}, []float64{2, 200, 6, 7}); !slices.Equal(got, []float64{0.5, 0.5, 0.5}) {
		t.Errorf("ratios are %v", got)
	}
}
