// Command testlog turns the events of "go test -json" into a log that people read and a record that .ci/run counts. It is not
// part of the product: it stands under a folder that "./..." does not reach. Start with main.
//
// It prints the output of packages and of tests that failed, one line for each skip, nothing for a test that passed, and at
// the end the names of what failed. With -record it appends a line "package TAB test TAB result TAB reason" to a file for every test, sub-tests included.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// event is one line of test2json's output, as far as it is used here.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

// testID names a test; the test is empty for a package.
type testID struct{ pkg, test string }

func main() {
	record := flag.String("record", "", "append the result of every test to this `file`")
	module := flag.String("module", "", "import `path` to leave out at the start of package names")
	flag.Parse()
	failed, err := run(os.Stdin, os.Stdout, *record, *module)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testlog:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// run reads events to the end of in and reports whether anything failed.
func run(in io.Reader, out io.Writer, recordPath, module string) (failed bool, err error) {
	record := io.Discard
	if recordPath != "" {
		file, err := os.OpenFile(recordPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return false, err
		}
		defer file.Close()
		record = file
	}
	output := make(map[testID][]string)
	var failures []string // repeated at the end, where one looks
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		if line == "" && err == io.EOF {
			for _, failure := range failures {
				fmt.Fprintln(out, "failed:", failure)
			}
			return failed, nil
		}
		if err != nil && err != io.EOF {
			return failed, err
		}
		var e event
		if json.Unmarshal([]byte(line), &e) != nil {
			fmt.Fprint(out, line) // not an event: a message of the go command
			continue
		}
		e.Package = strings.TrimPrefix(e.Package, module+"/")
		id := testID{e.Package, e.Test}
		switch e.Action {
		case "output", "build-output":
			if e.Test == "" {
				fmt.Fprint(out, e.Output)
			} else {
				output[id] = append(output[id], e.Output)
			}
		case "fail", "build-fail":
			failed = true
			if e.Package != "" { // a failed build comes again as the failure of its package
				failures = append(failures, strings.TrimSpace(e.Package+" "+e.Test))
			}
			fmt.Fprint(out, strings.Join(output[id], ""))
			if e.Test == "" { // a time-out or a crash: what the tests said that never ended, the stack included
				for unfinished, said := range output {
					if unfinished.pkg == e.Package && unfinished.test != "" {
						fmt.Fprint(out, strings.Join(said, ""))
						delete(output, unfinished)
					}
				}
			}
		case "skip":
			if e.Test != "" {
				fmt.Fprintf(out, "skipped: %s %s: %s\n", e.Package, e.Test, reason(output[id]))
			}
		}
		switch e.Action {
		case "pass", "fail", "skip":
			if e.Test != "" {
				fmt.Fprintf(record, "%s\t%s\t%s\t%s\n", e.Package, e.Test, e.Action, reason(output[id]))
			}
			delete(output, id)
		}
	}
}

// reason is what a test said, without the frame that the testing package puts around it.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.ReplaceAll(strings.Join(said, " / "), "\t", " ")
}
