package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The flags of a daemon may also be given in its environment and in a file: what the command line does not say is
// looked up in POSTERN_NAME, with the flag's name in capitals and _ for -, and then in the file of --config, a line
// "NAME VALUE" for each. Flags that may be repeated have several lines in the file, and in the environment the
// separator of PATH. No secret is ever a flag, so none is in either.

const environmentPrefix = "POSTERN_"

// withSettings gives a command --config and its environment.
func withSettings(cmd *cobra.Command) {
	var path string
	cmd.Flags().StringVar(&path, "config", "", "file with flags, a line NAME VALUE each; the command line and POSTERN_NAME in the environment go first")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return applySettings(cmd.Flags(), os.LookupEnv) }
}

// applySettings sets the flags that the command line has left out.
func applySettings(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	given := make(map[string]bool) // on the command line or by what goes before
	flags.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	var failure error
	fromEnvironment := make(map[string]bool)
	flags.VisitAll(func(f *pflag.Flag) {
		name := variableOf(f.Name)
		value, set := lookup(name)
		if given[f.Name] || !set || value == "" || f.Name == "help" || failure != nil {
			return
		}
		fromEnvironment[f.Name] = true
		for _, each := range valuesOf(f, value) {
			if err := flags.Set(f.Name, each); err != nil {
				failure = fmt.Errorf("%s: %w", name, err)
			}
		}
	})
	if failure != nil {
		return failure
	}
	for name := range fromEnvironment {
		given[name] = true
	}
	path := flags.Lookup("config").Value.String()
	if path == "" {
		return nil
	}
	file, err := readSettings(path)
	if err != nil {
		return err
	}
	for _, s := range file {
		f := flags.Lookup(s.name)
		switch {
		case f == nil || s.name == "config" || s.name == "help":
			return fmt.Errorf("%s:%d: unknown setting %q: want the name of a flag without --", path, s.line, s.name)
		case given[s.name]:
			continue
		case s.repeated && !repeatable(f):
			return fmt.Errorf("%s:%d: %s is given twice", path, s.line, s.name)
		}
		if err := flags.Set(s.name, s.value); err != nil {
			return fmt.Errorf("%s:%d: %w", path, s.line, err)
		}
	}
	return nil
}

// variableOf is the environment variable of a flag.
func variableOf(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

func repeatable(f *pflag.Flag) bool {
	_, ok := f.Value.(pflag.SliceValue)
	return ok
}

func valuesOf(f *pflag.Flag, value string) []string {
	if repeatable(f) {
		return filepath.SplitList(value)
	}
	return []string{value}
}

// setting is a line of a settings file.
type setting struct {
	name, value string
	line        int
	repeated    bool
}

// maxSettings bounds a settings file.
const maxSettings = 1 << 20

func readSettings(path string) ([]setting, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSettings {
		return nil, fmt.Errorf("--config %s: want a file of at most %d bytes", path, maxSettings)
	}
	return parseSettings(path, io.LimitReader(f, maxSettings))
}

func parseSettings(path string, r io.Reader) ([]setting, error) {
	var list []setting
	seen := make(map[string]bool)
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxSettings)
	for number := 1; lines.Scan(); number++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, found := strings.Cut(line, " ")
		value = strings.TrimSpace(value)
		if !found || value == "" {
			return nil, fmt.Errorf("%s:%d: setting without a value: want NAME VALUE, for a switch true or false", path, number)
		}
		list = append(list, setting{name, value, number, seen[name]})
		seen[name] = true
	}
	if err := lines.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("--config %s", path), err)
	}
	return list, nil
}

// changedSettings names what a settings file says now and did not say before, or the other way round.
func changedSettings(before, now []setting) (names []string) {
	values := func(list []setting) map[string]string {
		m := make(map[string]string)
		for _, s := range list {
			m[s.name] += s.value + "\n"
		}
		return m
	}
	old, fresh := values(before), values(now)
	for _, s := range append(append([]setting(nil), before...), now...) {
		if old[s.name] != fresh[s.name] {
			names = append(names, s.name)
			old[s.name], fresh[s.name] = "", ""
		}
	}
	return names
}
