//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// repository is the root, from where this package's tests run.
const repository = "../.."

func readText(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(repository, path))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// codeBlocks are the fenced parts of a Markdown text.
func codeBlocks(text string) (blocks []string) {
	for i, part := range strings.Split(text, "\n```") {
		if i%2 == 1 {
			_, code, _ := strings.Cut(part, "\n") // the first line names the language
			blocks = append(blocks, code)
		}
	}
	return blocks
}

// shellCommands splits shell text into commands of words, as far as documentation goes: quotes,
// continued lines, comments, pipes and redirections.
func shellCommands(text string) (commands [][]string) {
	var words []string
	var word strings.Builder
	inWord, quote := false, byte(0)
	endWord := func() {
		if inWord {
			words = append(words, word.String())
		}
		word.Reset()
		inWord = false
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
		}
		words = nil
	}
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteByte(c)
		case c == '\'' || c == '"':
			quote, inWord = c, true
		case c == '\\' && i+1 < len(text):
			if i++; text[i] != '\n' {
				word.WriteByte(text[i])
				inWord = true
			}
		case c == '#' && !inWord:
			if i += strings.IndexByte(text[i:]+"\n", '\n') - 1; i < 0 {
				return commands
			}
		case c == '\n' || strings.IndexByte("|<>;&", c) >= 0:
			endCommand()
		case c == ' ' || c == '\t':
			endWord()
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return commands
}

// posternArgs are a command's arguments, if it runs postern: by name, by path or by go run,
// with variables set for it or not.
func posternArgs(words []string) ([]string, bool) {
	for len(words) > 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(words[0]) {
		words = words[1:]
	}
	if len(words) > 3 && words[0] == "go" && words[1] == "run" && words[2] == "./cmd/postern" {
		return words[3:], true
	}
	if len(words) > 1 && filepath.Base(words[0]) == "postern" {
		return words[1:], true
	}
	return nil, false
}

func TestDocumentedCommandLinesParse(t *testing.T) {
	t.Parallel()
	units, err := filepath.Glob(filepath.Join(repository, "deploy/systemd/*.service"))
	if err != nil || len(units) == 0 {
		t.Fatalf("no units: %v", err)
	}
	lines := make(map[string][][]string) // by file
	for _, u := range units {
		b, err := os.ReadFile(u)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindAllSubmatch(b, -1) {
			lines[filepath.Base(u)] = append(lines[filepath.Base(u)], shellCommands(string(m[1]))...)
		}
	}
	for _, file := range []string{"README.md", "deploy/README.md"} {
		for _, block := range codeBlocks(readText(t, file)) {
			lines[file] = append(lines[file], shellCommands(block)...)
		}
	}
	counts := make(map[string]int)
	for file, commands := range lines {
		for _, words := range commands {
			args, ok := posternArgs(words)
			if !ok {
				continue
			}
			counts[file]++
			if err := parses(args); err != nil {
				t.Errorf("%s: postern %s: %v", file, strings.Join(args, " "), err)
			}
		}
	}
	for file, least := range map[string]int{"postern-relay.service": 1, "postern-executor.service": 1, "README.md": 9} {
		if counts[file] < least {
			t.Errorf("%s: %d command lines found, want at least %d", file, counts[file], least)
		}
	}
}

// parses looks for the verb and its flags, and runs nothing.
func parses(args []string) error {
	cmd, rest, err := newRoot(stdio{}).Find(args)
	if err != nil {
		return err
	}
	if !cmd.HasParent() {
		return fmt.Errorf("no verb")
	}
	return cmd.ParseFlags(rest)
}

func TestExamplesInHelpTextsParse(t *testing.T) {
	t.Parallel()
	for _, cmd := range append(newRoot(stdio{}).Commands(), newRoot(stdio{})) {
		if cmd.Hidden || cmd.Name() == "help" {
			continue
		}
		found := false
		for _, words := range shellCommands(cmd.Example) {
			if args, ok := posternArgs(words); ok {
				found = true
				if err := parses(args); err != nil {
					t.Errorf("%s: example postern %s: %v", cmd.Name(), strings.Join(args, " "), err)
				}
			}
		}
		if !found {
			t.Errorf("%s has no example", cmd.Name())
		}
	}
}
