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

// The markers in a Markdown file between which the table stands.
const (
	beginMarker = "<!-- cmd/bench begins: what stands here is generated -->"
	endMarker   = "<!-- cmd/bench ends -->"
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
	if len(next.Measures) == 0 {
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

// publish prints the table, and writes the files that were asked for.
func (b *bench) publish(out io.Writer) error {
	b.report.sort()
	table := b.report.markdown()
	if _, err := io.WriteString(out, table); err != nil {
		return err
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
	text, err := between(string(old), table)
	if err != nil {
		return fmt.Errorf("%s: %w", b.o.out, err)
	}
	return os.WriteFile(b.o.out, []byte(text), 0o644)
}

// between puts a table between the markers of a text, whose other parts stay as they are. A text without markers
// gets them at its end.
func between(text, table string) (string, error) {
	block := beginMarker + "\n\n" + strings.TrimSpace(table) + "\n\n" + endMarker
	begins, ends := strings.Count(text, beginMarker), strings.Count(text, endMarker)
	if begins == 0 && ends == 0 {
		if text != "" {
			text = strings.TrimRight(text, "\n") + "\n\n"
		}
		return text + block + "\n", nil
	}
	before, rest, _ := strings.Cut(text, beginMarker)
	_, after, found := strings.Cut(rest, endMarker)
	if begins != 1 || ends != 1 || !found {
		return "", fmt.Errorf("want %q once and %q once after it", beginMarker, endMarker)
	}
	return before + block + after, nil
}
