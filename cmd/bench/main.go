//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/postern-relay/postern/sandbox"
)

// options are the flags.
type options struct {
	rounds   int
	only     []string
	json     string
	keep     string
	out      string
	delay    time.Duration
	idle     []int
	growth   []string
	sizes    []int // of a growth, rising
	ssh      bool
	postern  string
	profiles string
	quick    bool
}

func main() {
	sandbox.Init() // for the measure of package sandbox, whose own processes are this binary too
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args, os.Stdout, os.Stderr)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) error {
	if n := os.Getenv(crowdVariable); n != "" {
		return beCrowd(ctx, n, os.Stdin, out)
	}
	o, err := parseOptions(args[1:], progress)
	if err != nil {
		return err
	}
	b, err := newBench(o, progress)
	if err != nil {
		return err
	}
	defer b.close()
	b.report.Command = strings.TrimSpace("go run ./cmd/bench " + strings.Join(quoted(args[1:]), " "))
	if err := b.measureAll(ctx); err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted")
		}
		return err
	}
	if err := b.keep(); err != nil {
		return err
	}
	return b.publish(out)
}

func parseOptions(args []string, usage io.Writer) (o options, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.SetOutput(usage)
	f.IntVar(&o.rounds, "rounds", 10, "turns of each side; cheap measures take more, dear ones fewer")
	only := f.String("only", "", "comma-separated measures instead of all: "+strings.Join(measureNames, ", ")+"; or none")
	f.StringVar(&o.keep, "keep", "", "take what -only leaves out from this `file`, which -json has written earlier")
	f.StringVar(&o.json, "json", "", "write all figures into this `file`")
	f.StringVar(&o.out, "out", "", "put the table into this Markdown `file`, between its markers")
	f.DurationVar(&o.delay, "delay", targetDelay, "round-trip time that the delayed path adds to each leg; 0 leaves that path out")
	idle := f.String("idle", "1000", "comma-separated numbers of idle executors; 5000 take two minutes more")
	growth := f.String("growth", "", "comma-separated growths, instead of the measures unless -only names some: "+strings.Join(growthNames, ", ")+"; they take some 8, 5 and 5 minutes")
	sizes := f.String("sizes", "1,10,100,1000,10000", "comma-separated numbers, rising, at which a growth is looked at")
	f.BoolVar(&o.ssh, "ssh", true, "measure OpenSSH too, where it is installed")
	f.StringVar(&o.postern, "postern", "", "measure this `binary` instead of one that is built here")
	f.StringVar(&o.profiles, "profiles", "", "also write CPU profiles of client, relay and executor into this `folder`")
	f.BoolVar(&o.quick, "quick", false, "see whether it works: few, small turns, whose figures say little")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("what is %q? want flags only", f.Arg(0))
	}
	for _, name := range words(*only) {
		if name != noMeasure && !slices.Contains(measureNames, name) {
			return o, fmt.Errorf("-only: no measure %q; there are: %s", name, strings.Join(measureNames, ", "))
		}
		o.only = append(o.only, name)
	}
	for _, name := range words(*growth) {
		if !slices.Contains(growthNames, name) {
			return o, fmt.Errorf("-growth: there is no %q; there are: %s", name, strings.Join(growthNames, ", "))
		}
		o.growth = append(o.growth, name)
	}
	if len(o.growth) > 0 && len(o.only) == 0 {
		o.only = []string{noMeasure}
	}
	if o.idle, err = numbers(*idle); err != nil {
		return o, fmt.Errorf("-idle: %w", err)
	}
	if o.sizes, err = numbers(*sizes); err != nil {
		return o, fmt.Errorf("-sizes: %w", err)
	}
	if len(o.sizes) == 0 || !slices.IsSorted(o.sizes) || o.sizes[len(o.sizes)-1] > mostOfAll {
		return o, fmt.Errorf("-sizes %q: want rising numbers up to %d", *sizes, mostOfAll)
	}
	switch {
	case o.rounds <= 0:
		return o, fmt.Errorf("-rounds %d: want a number above zero", o.rounds)
	case o.delay < 0:
		return o, fmt.Errorf("-delay %v: a delay cannot be negative", o.delay)
	}
	if o.quick {
		o.rounds, o.idle, o.sizes = 1, []int{20}, []int{1, 20}
	}
	return o, nil
}

// quoted are arguments as one would type them.
func quoted(args []string) []string {
	all := slices.Clone(args)
	for i, arg := range all {
		if strings.ContainsAny(arg, " *?$'\"") {
			all[i] = strconv.Quote(arg)
		}
	}
	return all
}

// mostOfAll is how far a growth may go: one process has a socket for each connection, and they share one address.
const mostOfAll = 15_000

// numbers are those of a list with commas, all above zero.
func numbers(list string) (all []int, err error) {
	for _, text := range words(list) {
		n, err := strconv.Atoi(text)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("%q is no number above zero", text)
		}
		all = append(all, n)
	}
	return all, nil
}

// words are the parts of a list with commas.
func words(list string) (all []string) {
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}
