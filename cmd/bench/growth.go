//go:build linux

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The growths, as the report and -growth call them.
const (
	growthConnections = "connections"
	growthExecs       = "execs"
	growthCommands    = "commands"
)

// growths are what one thing costs as there are ever more of it: postern alone, at each of -sizes.
var growths = []struct {
	name string
	take func(context.Context, *bench, *growth) error
}{
	{growthConnections, growConnections},
	{growthExecs, growExecs},
	{growthCommands, growCommands},
}

var growthNames = []string{growthConnections, growthExecs, growthCommands}

// growth is what was found of one of them.
type growth struct {
	Name     string      `json:"name"`
	About    string      `json:"about"`
	When     time.Time   `json:"when"` // its end
	Command  string      `json:"command"`
	Revision string      `json:"revision"`
	Machine  machine     `json:"machine"`
	Load     spread      `json:"load"` // of the machine, at each size
	Sizes    []int       `json:"sizes"`
	Rows     []growthRow `json:"rows"`
	Failed   string      `json:"failed,omitempty"` // why the sizes that are missing are
}

// growthRow is one figure at each size.
type growthRow struct {
	Figure string          `json:"figure"`
	Unit   string          `json:"unit,omitempty"`
	Flat   bool            `json:"flat"` // it should not depend on the size
	Values map[int]float64 `json:"values"`
}

// total puts in a figure of all at a size together.
func (g *growth) total(n int, figure, unit string, value float64) {
	g.put(n, figure, unit, false, value)
}

// flat puts in a figure that should be the same at every size, of one say.
func (g *growth) flat(n int, figure, unit string, value float64) { g.put(n, figure, unit, true, value) }

func (g *growth) put(n int, figure, unit string, flat bool, value float64) {
	if !slices.Contains(g.Sizes, n) {
		g.Sizes = append(g.Sizes, n)
	}
	i := slices.IndexFunc(g.Rows, func(r growthRow) bool { return r.Figure == figure })
	if i < 0 {
		i = len(g.Rows)
		g.Rows = append(g.Rows, growthRow{figure, unit, flat, make(map[int]float64)})
	}
	g.Rows[i].Values[n] = value
}

// takeGrowth takes those that -growth names. One that the product does not stand is a finding like others: it is
// reported with the sizes that went well.
func (b *bench) takeGrowth(ctx context.Context) error {
	for _, of := range growths {
		if !slices.Contains(b.o.growth, of.name) {
			continue
		}
		g := growth{Name: of.name, Command: b.report.Command, Revision: b.report.Revision, Machine: b.report.Machine}
		var loads []float64
		b.atSize = func(n int) {
			b.say("growth of %s: %d", of.name, n)
			loads = append(loads, load())
		}
		err := of.take(ctx, b, &g)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && len(g.Sizes) == 0 {
			err = errors.New("no size that is allowed")
		}
		if err != nil {
			b.say("growth of %s: %v", of.name, err)
			g.Failed = err.Error()
		}
		g.When, g.Load = time.Now(), spreadOf(append(loads, load()))
		b.report.Growth = append(b.report.Growth, g)
	}
	return nil
}

// mergeGrowth replaces what a later run has taken again.
func mergeGrowth(old, next []growth) []growth {
	for _, g := range old {
		if !slices.ContainsFunc(next, func(h growth) bool { return h.Name == g.Name }) {
			next = append(next, g)
		}
	}
	slices.SortStableFunc(next, func(g, h growth) int {
		return cmp.Compare(slices.Index(growthNames, g.Name), slices.Index(growthNames, h.Name))
	})
	return next
}

// growthMarkdown is the table of all growths, with a column for each size.
func (r *report) growthMarkdown() string {
	sizes := make(map[int]bool)
	for _, g := range r.Growth {
		for _, n := range g.Sizes {
			sizes[n] = true
		}
	}
	columns := slices.Sorted(maps.Keys(sizes))
	var b strings.Builder
	b.WriteString("| growth of | figure |")
	for _, n := range columns {
		fmt.Fprintf(&b, " %s |", thousands(n))
	}
	b.WriteString(" most to a hundredth |\n|---|---|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, g := range r.Growth {
		for _, row := range g.Rows {
			fmt.Fprintf(&b, "| %s | %s |", g.Name, strings.TrimSuffix(row.Figure+", "+row.Unit, ", "))
			for _, n := range columns {
				cell := ""
				if v, ok := row.Values[n]; ok {
					cell = number(v)
				}
				fmt.Fprintf(&b, " %s |", cell)
			}
			fmt.Fprintf(&b, " %s |\n", row.grown())
		}
	}
	b.WriteString("\nWhat each one is:\n\n")
	for _, g := range r.Growth {
		fmt.Fprintf(&b, "- **%s** (%s, revision %s, `%s`, %s, load %.0f): %s.", g.Name, g.When.UTC().Format("2006-01-02 15:04 MST"), g.Revision, g.Command, g.Machine, g.Load.Median, g.About)
		if g.Failed != "" {
			fmt.Fprintf(&b, " **It ended early**: %s", strings.ReplaceAll(strings.TrimSpace(g.Failed), "\n", " "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// grown is the figure at the largest size divided by that at a hundredth of it, for one that should be flat.
func (r *growthRow) grown() string {
	if !r.Flat || len(r.Values) == 0 {
		return ""
	}
	most := slices.Max(slices.Collect(maps.Keys(r.Values)))
	less, ok := r.Values[most/100]
	if !ok || less == 0 {
		return ""
	}
	return number(r.Values[most] / less)
}

// thousands is a number as people write it.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// inUse is what a daemon of the product has in use, bytes, after collections.
func inUse(ctx context.Context, watched string) (float64, error) {
	for range 2 { // pools are given up by the second
		if _, err := get(ctx, watched, "/debug/pprof/heap?gc=1"); err != nil {
			return 0, err
		}
	}
	heap, err := sampleOf(ctx, watched, "go_memstats_heap_alloc_bytes")
	if err != nil {
		return 0, err
	}
	stacks, err := sampleOf(ctx, watched, "go_memstats_stack_inuse_bytes")
	return heap + stacks, err
}

// idleMinute is the processor time in seconds that a process uses in a minute in which nobody asks it anything.
func (b *bench) idleMinute(ctx context.Context, pid int) (float64, error) {
	window := 30 * time.Second // three heartbeats
	if b.o.quick {
		window = 300 * time.Millisecond
	}
	before, err := processor(pid)
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := pause(ctx, window); err != nil {
		return 0, err
	}
	after, err := processor(pid)
	return (after - before) * 60 / time.Since(begun).Seconds(), err
}
