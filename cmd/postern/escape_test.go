package main

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// typed runs input through a filter, cut at the places that cuts says, and shows the actions as
// <help> and <leave> where they come. Nothing is read after leaving.
func typed(char byte, pieces ...string) string {
	e := escapes{char: char}
	var out []byte
	for _, piece := range pieces {
		for src := []byte(piece); len(src) > 0; {
			var used int
			var action escapeAction
			out, used, action = e.filter(out, src)
			src = src[used:]
			switch action {
			case helpAction:
				out = append(out, "<help>"...)
			case leaveAction:
				return string(append(out, "<leave>"...))
			}
		}
	}
	return string(out)
}

func TestEscapesCountAtTheBeginningOfALineOnly(t *testing.T) {
	t.Parallel()
	for input, want := range map[string]string{
		"":                "",
		"ls\r":            "ls\r",
		"~.":              "<leave>",
		"~.rest":          "<leave>",
		"ls\r~.":          "ls\r<leave>",
		"ls\n~.":          "ls\n<leave>",
		"ls~.":            "ls~.",
		"ls ~/x\r":        "ls ~/x\r",
		"~?":              "<help>",
		"~?~.":            "<help><leave>",
		"~?~?ls\r":        "<help><help>ls\r",
		"~~":              "~",
		"~~.":             "~.",
		"~~~.":            "~~.",
		"~~\r~.":          "~\r<leave>",
		"~/bin/x\r":       "~/bin/x\r",
		"~\r~.":           "~\r<leave>",
		"~":               "", // until the next key
		"a\r~":            "a\r",
		"\x03~.":          "\x03~.",
		"\x00\xff~.\r~~x": "\x00\xff~.\r~x",
	} {
		if got := typed('~', input); got != want {
			t.Errorf("typing %q gives %q, want %q", input, got, want)
		}
	}
	if got := typed(0, "\x00.\r~.\r\x00?"); got != "\x00.\r~.\r\x00?" {
		t.Errorf("without escapes typing gives %q", got)
	}
	if got := typed('%', "~.\r%?%%\r%."); got != "~.\r<help>%\r<leave>" {
		t.Errorf("with another escape character typing gives %q", got)
	}
}

func TestEscapeCharacterIsOneOrNone(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]byte{"~": '~', "%": '%', "a": 'a', "none": 0} {
		if got, err := parseEscape(text); err != nil || got != want {
			t.Errorf("parseEscape(%q) = %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", " ", "ab", ".", "?", "\r", "\x1b", "\xff", "ä", "None"} {
		if _, err := parseEscape(text); err == nil {
			t.Errorf("parseEscape(%q) is accepted", text)
		}
	}
}

// FuzzEscapes: how the input is cut makes no difference, and without the escape character at the
// beginning of a line nothing is changed.
func FuzzEscapes(f *testing.F) {
	for _, input := range []string{"", "~.", "ls\r~?~~x\n~.", "~~~.", "a~.\r\r~~\n~", "\r~\r~?\r~."} {
		f.Add([]byte(input), uint(1), uint(3))
	}
	f.Fuzz(func(t *testing.T, input []byte, first, second uint) {
		whole := typed('~', string(input))
		a := first % uint(len(input)+1)
		b := a + second%(uint(len(input))-a+1)
		if got := typed('~', string(input[:a]), string(input[a:b]), string(input[b:])); got != whole {
			t.Errorf("%q cut at %d and %d gives %q, whole %q", input, a, b, got, whole)
		}
		if got := typed('~', strings.Split(string(input), "")...); got != whole {
			t.Errorf("%q a byte at a time gives %q, whole %q", input, got, whole)
		}
		text := "\n" + strings.ReplaceAll(string(input), "\r", "\n")
		if !strings.Contains(text, "\n~") && whole != string(input) {
			t.Errorf("%q has no escape, and becomes %q", input, whole)
		}
	})
}

func TestTypeaheadTakesEscapesOutWhileNobodyReads(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	left := make(chan struct{})
	keys := iotest.OneByteReader(strings.NewReader("one\r~?two\r~.lost"))
	ahead := typing(keys, '~', func(text string) { help.WriteString(text) }, func() { close(left) })
	<-left // before anything was taken
	got, err := io.ReadAll(ahead)
	if string(got) != "one\rtwo\r" || !errors.Is(err, errLeft) {
		t.Errorf("the command gets %q, %v; want what was typed before leaving, and errLeft", got, err)
	}
	if want := (&escapes{char: '~'}).help(); help.String() != want {
		t.Errorf("the help is %q, want %q", help.String(), want)
	}
}

func TestUserLeavesWithTheTerminal(t *testing.T) {
	t.Parallel()
	for _, end := range []error{io.EOF, errors.New("gone")} {
		left := make(chan struct{})
		keys := io.MultiReader(strings.NewReader("a\r"), iotest.ErrReader(end))
		got, err := io.ReadAll(typing(keys, '~', func(string) {}, func() { close(left) }))
		if string(got) != "a\r" || !errors.Is(err, errLeft) {
			t.Errorf("after %v the command gets %q, %v; want what was typed, and errLeft", end, got, err)
		}
		<-left
	}
}

func TestTypeaheadIsBounded(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("x"), 3*maxTypeahead)
	got, err := io.ReadAll(typing(bytes.NewReader(data), '~', func(string) {}, func() {}))
	if !errors.Is(err, errLeft) || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v; want all %d", len(got), err, len(data))
	}
	ahead := &typeahead{escapes: escapes{char: '~'}}
	ahead.changed.L = &ahead.mu
	full := make(chan struct{})
	go func() {
		ahead.take(data[:maxTypeahead], false)
		close(full)
	}()
	if _, err := ahead.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	<-full // a Read makes room
}
