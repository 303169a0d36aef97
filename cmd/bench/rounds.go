//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// settling is before each turn. What a turn leaves behind is not the next one's: the next sandbox being made, a session of ssh
// being taken down. It is work of a few milliseconds, and some turns take no more.
const settling = 100 * time.Millisecond

// quantity is one figure that a sample yields.
type quantity struct {
	name, unit string
	more       bool // is better
}

// contender is one side of a measure.
type contender struct {
	name string
	peer bool // it is compared with; the others are postern's
	// sample yields a figure for each quantity of the measure, from one turn.
	sample func(context.Context) ([]float64, error)
}

// measure is a list of contenders that take turns.
type measure struct {
	name, path string
	about      string // how it is measured, for the report
	quantities []quantity
	contenders []contender
	rounds     int
	settle     time.Duration // before each turn
	close      func()        // nil: nothing to do
	loads      []float64     // of the machine, at each round
}

// samples are the figures by contender, then by quantity, then by round.
type samples map[string][][]float64

// run gives each contender one turn in every round, in random order. The first round only warms up.
func (m *measure) run(ctx context.Context) (samples, error) {
	all := make(samples)
	for _, c := range m.contenders {
		all[c.name] = make([][]float64, len(m.quantities))
	}
	for round := range m.rounds + 1 {
		m.loads = append(m.loads, load())
		for _, i := range rand.Perm(len(m.contenders)) {
			c := m.contenders[i]
			if err := pause(ctx, m.settle); err != nil {
				return nil, err
			}
			figures, err := c.sample(ctx)
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %s: %w", m.name, m.path, c.name, err)
			}
			if len(figures) != len(m.quantities) {
				return nil, fmt.Errorf("%s: %s yields %d figures, want %d", m.name, c.name, len(figures), len(m.quantities))
			}
			if round == 0 {
				continue
			}
			for q, figure := range figures {
				all[c.name][q] = append(all[c.name][q], figure)
			}
		}
	}
	return all, nil
}
