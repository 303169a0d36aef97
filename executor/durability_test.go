package executor

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// DURABILITY.md is worth what the tests are that it names.
func TestTestsNamedInTheDurabilityPageExist(t *testing.T) {
	page, err := os.ReadFile("DURABILITY.md")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	err = filepath.WalkDir("..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") && !strings.Contains(path, "wiretest") {
			return err
		}
		b, err := os.ReadFile(path)
		tests.Write(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(string(page), -1)
	found := 0
	for _, m := range named {
		switch name := m[1]; {
		case name == "Exit":
		case strings.Contains(tests.String(), "func "+name+"("), strings.Contains(tests.String(), `{"`+name+`", func`):
			found++
		default:
			t.Errorf("%s is no test and no row of the conformance suite", name)
		}
	}
	if found < 60 {
		t.Errorf("only %d tests are named", found)
	}
}
