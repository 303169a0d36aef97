//go:build linux

package main

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestEverySideHasOneTurnInEachRoundAndTheFirstIsNotCounted(t *testing.T) {
	var turns []string
	side := func(name string) contender {
		n := 0
		return contender{name: name, sample: func(context.Context) ([]float64, error) {
			n++
			turns = append(turns, name)
			return []float64{float64(n)}, nil
		}}
	}
	m := &measure{name: "m", quantities: []quantity{{name: "q"}}, contenders: []contender{side("a"), side("b"), side("c")}, rounds: 20}
	all, err := m.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	orders := make(map[string]bool)
	for round := range 21 {
		of := turns[3*round : 3*round+3]
		order := strings.Join(of, "")
		for _, name := range []string{"a", "b", "c"} {
			if strings.Count(order, name) != 1 {
				t.Fatalf("round %d is %v", round, of)
			}
		}
		orders[order] = true
	}
	if len(orders) == 1 {
		t.Error("the order is the same in all rounds")
	}
	for name, figures := range all {
		if len(figures[0]) != 20 || figures[0][0] != 2 {
			t.Errorf("%s has the figures %v", name, figures[0])
		}
	}
}

func TestAFailedTurnEndsTheMeasureAndNamesTheSide(t *testing.T) {
	failure := errors.New("no")
	m := &measure{name: "m", path: loopback, quantities: []quantity{{name: "q"}}, rounds: 1, contenders: []contender{
		{name: "good", sample: func(context.Context) ([]float64, error) { return []float64{1}, nil }},
		{name: "bad", sample: func(context.Context) ([]float64, error) { return nil, failure }},
	}}
	if _, err := m.run(t.Context()); !errors.Is(err, failure) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	m.contenders = m.contenders[:1]
	if _, err := m.run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error after an interruption is %v", err)
	}
}
