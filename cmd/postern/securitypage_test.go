//go:build linux

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The table of attacks in SECURITY.md is worth what the tests are that it names.
func TestTestsNamedInTheSecurityPageExist(t *testing.T) {
	t.Parallel()
	page := readText(t, "SECURITY.md")
	var tests strings.Builder
	err := filepath.WalkDir(repository, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Za-z0-9]+)`").FindAllStringSubmatch(page, -1)
	for _, m := range named {
		if !strings.Contains(tests.String(), "func "+m[1]+"(") {
			t.Errorf("%s is no test", m[1])
		}
	}
	for row := range strings.FieldsSeq("N1 N2 N3 N4 N5 N6 R1 R2 R3 R4 R5 R6 R7 C1 C2 C3 C4 X1 X2 X3 T1 T2 T3 K1 K2 K3 K4") {
		if !strings.Contains(page, "| "+row+" |") {
			t.Errorf("attack %s has no row", row)
		}
	}
	if len(named) < 50 {
		t.Errorf("only %d tests are named", len(named))
	}
}
