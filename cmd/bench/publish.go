//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// markers stand before and after a table in a Markdown file.
type markers struct{ begin, end string }

var (
	aroundMeasures = markers{"<!-- cmd/bench begins: what stands here is generated -->", "<!-- cmd/bench ends -->"}
	aroundGrowth   = markers{"<!-- cmd/bench -growth begins: what stands here is generated -->", "<!-- cmd/bench -growth ends -->"}
)

// keep takes measures that were not taken from an earlier run's file.
func (b *bench) keep() error {
	if b.o.keep == "" {
		return nil
	}
	text, err := os.ReadFile(b.o.keep)
	if err != nil {
		return err
	}
	var old report
	if err := json.Unmarshal(text, &old); err != nil {
		return fmt.Errorf("%s: %w", b.o.keep, err)
	}
	b.report = merge(old, b.report)
	return nil
}

// merge replaces what a later run has measured again. Where that has measured nothing, all is the old one's.
func merge(old, next report) report {
	next.Growth = mergeGrowth(old.Growth, next.Growth)
	if len(next.Measures) == 0 {
		old.Growth = next.Growth
		return old
	}
	for _, m := range old.Measures {
		if !slices.ContainsFunc(next.Measures, m.same) {
			next.Measures = append(next.Measures, m)
		}
	}
	for _, p := range old.Peers {
		if !slices.ContainsFunc(next.Peers, func(q peerReport) bool { return p.Name == q.Name && p.Path == q.Path }) {
			next.Peers = append(next.Peers, p)
		}
	}
	return next
}

// sort puts measures into the order of the report, their paths beside each other.
func (r *report) sort() {
	place := func(m measureReport) int {
		return 2*slices.Index(measureNames, m.Name) + min(1, strings.Count(m.Path, delayed))
	}
	slices.SortStableFunc(r.Measures, func(a, b measureReport) int { return place(a) - place(b) })
}

func (m measureReport) same(other measureReport) bool {
	return m.Name == other.Name && m.Path == other.Path
}

// tables are what there is to print.
func (b *bench) tables() map[markers]string {
	all := make(map[markers]string)
	if len(b.report.Growth) > 0 {
		all[aroundGrowth] = b.report.growthMarkdown()
	}
	if len(b.report.Measures) > 0 || len(all) == 0 {
		all[aroundMeasures] = b.report.markdown()
	}
	return all
}

// publish prints the tables, and writes the files that were asked for.
func (b *bench) publish(out io.Writer) error {
	b.report.sort()
	tables := b.tables()
	for _, around := range []markers{aroundMeasures, aroundGrowth} {
		if _, err := io.WriteString(out, tables[around]); err != nil {
			return err
		}
	}
	if b.o.json != "" {
		text, err := json.MarshalIndent(&b.report, "", "\t")
		if err != nil {
			return err
		}
		if err := os.WriteFile(b.o.json, append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	if b.o.out == "" {
		return nil
	}
	old, err := os.ReadFile(b.o.out)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := string(old)
	for _, around := range []markers{aroundMeasures, aroundGrowth} {
		if table, ok := tables[around]; ok {
			if text, err = around.put(text, table); err != nil {
				return fmt.Errorf("%s: %w", b.o.out, err)
			}
		}
	}
	return os.WriteFile(b.o.out, []byte(text), 0o644)
}

// put puts a table between the markers of a text, whose other parts stay as they are. A text without markers
// gets them at its end.
func (m markers) put(text, table string) (string, error) {
	block := m.begin + "\n\n" + strings.TrimSpace(table) + "\n\n" + m.end
	begins, ends := strings.Count(text, m.begin), strings.Count(text, m.end)
	if begins == 0 && ends == 0 {
		if text != "" {
			text = strings.TrimRight(text, "\n") + "\n\n"
		}
		return text + block + "\n", nil
	}
	before, rest, _ := strings.Cut(text, m.begin)
	_, after, found := strings.Cut(rest, m.end)
	if begins != 1 || ends != 1 || !found {
		return "", fmt.Errorf("want %q once and %q once after it", m.begin, m.end)
	}
	return before + block + after, nil
}
