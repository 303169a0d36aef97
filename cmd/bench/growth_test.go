//go:build linux

package main

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// grownBy is a growth whose one figure is what it is given.
func grownBy(name string, values map[int]float64) growth {
	g := growth{Name: name, About: "about"}
	for n, v := range values {
		g.flat(n, "memory, each", "KiB", v)
	}
	return g
}

func TestGrowthIsComparedWithAHundredthOfTheMost(t *testing.T) {
	for _, test := range []struct {
		name   string
		values map[int]float64
		want   string
	}{
		{"flat", map[int]float64{1: 900, 10: 500, 100: 80, 1000: 81, 10000: 80}, "1.00"},
		{"linear in the number", map[int]float64{10: 5, 1000: 500}, "100"},
		{"no hundredth", map[int]float64{1: 5, 10: 500}, ""},
		{"a hundredth too small to be counted", map[int]float64{1: 0, 100: 5}, ""},
		{"nothing", nil, ""},
	} {
		g := grownBy(growthExecs, test.values)
		got := ""
		if len(g.Rows) > 0 {
			got = g.Rows[0].grown()
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
	g := growth{}
	g.total(1, "memory, all", "MiB", 1)
	g.total(100, "memory, all", "MiB", 100)
	if got := g.Rows[0].grown(); got != "" {
		t.Errorf("a total, which has to grow, is compared: %q", got)
	}
}

func TestGrowthTableHasAColumnForEverySizeOfAny(t *testing.T) {
	stopped := grownBy(growthCommands, map[int]float64{1: 7, 20: 7})
	stopped.Failed = "20 running commands:\nbusy"
	r := report{Growth: []growth{grownBy(growthConnections, map[int]float64{10: 80.4, 10000: 81}), stopped}}
	text := r.growthMarkdown()
	for _, want := range []string{
		"| growth of | figure | 1 | 10 | 20 | 10,000 | most to a hundredth |\n|---|---|---|---|---|---|---|\n",
		"| connections | memory, each, KiB |  | 80.4 |  | 81.0 |  |\n",
		"| commands | memory, each, KiB | 7.00 |  | 7.00 |  |  |\n",
		"**It ended early**: 20 running commands: busy\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

func TestALaterGrowthReplacesItsOwnAndLeavesTheMeasures(t *testing.T) {
	old := report{
		Revision: "old", Measures: []measureReport{{Name: coldExec, Path: loopback}},
		Growth: []growth{grownBy(growthConnections, map[int]float64{1: 1}), grownBy(growthCommands, map[int]float64{1: 1})},
	}
	got := merge(old, report{Revision: "next", Growth: []growth{grownBy(growthCommands, map[int]float64{1: 2}), grownBy(growthExecs, map[int]float64{1: 2})}})
	var names []string
	for _, g := range got.Growth {
		names = append(names, g.Name)
	}
	if !slices.Equal(names, growthNames) || got.Growth[0].Rows[0].Values[1] != 1 || got.Growth[2].Rows[0].Values[1] != 2 {
		t.Errorf("merged: %+v", got.Growth)
	}
	if got.Revision != "old" || len(got.Measures) != 1 {
		t.Errorf("the measures are now of %s: %+v", got.Revision, got.Measures)
	}
}

func TestGrowthStandsBesideTheTableOfTheMeasures(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	measures := aroundMeasures.begin + "\nmeasured\n" + aroundMeasures.end
	if err := os.WriteFile(page, []byte(measures+"\nbetween\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &bench{o: options{out: page}, report: report{Growth: []growth{grownBy(growthExecs, map[int]float64{1: 1})}}}
	for range 2 {
		if err := b.publish(new(bytes.Buffer)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		want := measures + "\nbetween\n\n" + aroundGrowth.begin + "\n\n" + strings.TrimSpace(b.report.growthMarkdown()) + "\n\n" + aroundGrowth.end + "\n"
		if string(text) != want {
			t.Errorf("the page is\n%s\nwant\n%s", text, want)
		}
	}
}

func TestGrowthIsAskedForByName(t *testing.T) {
	for _, test := range []struct {
		args []string
		only []string
	}{
		{nil, nil},
		{[]string{"-growth", "execs"}, []string{noMeasure}},
		{[]string{"-growth", "execs,commands", "-only", "echo"}, []string{echo}},
	} {
		o, err := parseOptions(test.args, new(bytes.Buffer))
		if err != nil || !slices.Equal(o.only, test.only) || (len(o.growth) > 0) != (len(test.args) > 0) {
			t.Errorf("%q: %+v, %v", test.args, o, err)
		}
	}
	for _, args := range [][]string{{"-growth", "memory"}, {"-sizes", ""}, {"-sizes", "0"}, {"-sizes", "10,1"}, {"-sizes", "100000"}} {
		if o, err := parseOptions(args, new(bytes.Buffer)); err == nil {
			t.Errorf("%q is taken as %+v", args, o)
		}
	}
}

func TestProcessorTimeIsThatOfTheKernelsOwnAccount(t *testing.T) {
	child := grouped(exec.Command("sh", "-c", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; cat"))
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); _ = child.Wait() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	pid := child.Process.Pid
	used, err := processor(pid)
	if err != nil || used <= 0 {
		t.Fatalf("%v s, %v", used, err)
	}
	// User and system time are each rounded to a hundredth.
	if told := tree(pid)[pid].own; math.Abs(told-used) > 0.03 {
		t.Errorf("%v s, the kernel's account says %v s", used, told)
	}
	in.Close()
	_ = child.Wait()
	if used, err := processor(pid); err == nil {
		t.Errorf("a process that has ended has used %v s", used)
	}
}

func TestAShortGrowthTakesAllAndLeavesNothing(t *testing.T) {
	if os.Getenv("POSTERN_BENCH_RUN") == "" {
		t.Skip("set POSTERN_BENCH_RUN=1: it brings everything up")
	}
	tmp, figures := t.TempDir(), filepath.Join(t.TempDir(), "figures.json")
	cmd := benchCommand(t, tmp, "-quick", "-growth", strings.Join(growthNames, ","), "-json", figures)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r := reportIn(t, figures)
	for i, name := range growthNames {
		if len(r.Growth) <= i || r.Growth[i].Name != name || r.Growth[i].Failed != "" || len(r.Growth[i].Sizes) != 2 {
			t.Fatalf("no whole growth of %s: %+v", name, r.Growth)
		}
		for _, row := range r.Growth[i].Rows {
			if len(row.Values) != 2 {
				t.Errorf("%s, %s: %v", name, row.Figure, row.Values)
			}
		}
	}
	if err := await(t.Context(), "everything is gone", 20*time.Second, func() bool { return len(left(tmp)) == 0 }); err != nil {
		t.Errorf("%v: %v", err, left(tmp))
	}
}
