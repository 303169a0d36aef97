package main

import (
	"context"
	"strings"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// listing is a backend that has execs and can do nothing else.
type listing struct {
	wire.ExecBackend
	infos []wire.ExecInfo
	lists int
}

func (l *listing) List(context.Context) ([]wire.ExecInfo, error) {
	l.lists++
	return l.infos, nil
}

func listed(t *testing.T, owner, id string) wire.ExecInfo {
	t.Helper()
	parsed, err := wire.ParseExecID(id)
	if err != nil {
		t.Fatal(err)
	}
	return wire.ExecInfo{ID: parsed, Owner: owner}
}

func TestBeginningOfAnIDNamesTheOneExecThatHasIt(t *testing.T) {
	t.Parallel()
	const a, b, c = "aaaa0000000000000000000000000001", "aaaabbbb000000000000000000000002", "cccc0000000000000000000000000003"
	backend := &listing{infos: []wire.ExecInfo{listed(t, "me", a), listed(t, "me", b), listed(t, "me", c), listed(t, "ci", c)}}
	for _, test := range []struct{ word, owner, id, ofWhom, refused string }{
		{word: "aaaa0", id: a, ofWhom: "me"},
		{word: "AAAAB", id: b, ofWhom: "me"},
		{word: a[:31], id: a, ofWhom: "me"},
		{word: "cccc", owner: "ci", id: c, ofWhom: "ci"},
		{word: "aaaa", refused: "2 execs begin with aaaa, such as " + a + " and " + b + ": give more digits"},
		{word: "cccc", refused: "several principals have an exec " + c + ": say whose with --owner"},
		{word: "dddd", refused: "no exec dddd..."},
		{word: "aaaa0", owner: "ci", refused: "no exec aaaa0..."},
	} {
		word, err := parseExecWord(test.word)
		if err != nil {
			t.Fatal(err)
		}
		ref, err := word.find(t.Context(), backend, test.owner)
		switch {
		case test.refused != "" && (err == nil || err.Error() != test.refused):
			t.Errorf("%q of %q: %v, %v; want the error %q", test.word, test.owner, ref, err, test.refused)
		case test.refused == "" && (err != nil || ref.ID.String() != test.id || ref.Owner != test.ofWhom):
			t.Errorf("%q of %q: %v, %v; want %s of %s", test.word, test.owner, ref, err, test.id, test.ofWhom)
		}
	}
}

func TestWholeIDNeedsNoList(t *testing.T) {
	t.Parallel()
	backend := &listing{}
	word, err := parseExecWord("AAAA0000000000000000000000000001")
	if err != nil {
		t.Fatal(err)
	}
	ref, err := word.find(t.Context(), backend, "ci")
	if err != nil || ref.ID.String() != "aaaa0000000000000000000000000001" || ref.Owner != "ci" || backend.lists != 0 {
		t.Errorf("got %v, %v after %d lists, want that exec of ci's after none", ref, err, backend.lists)
	}
}

func TestWordsThatAreNoIDsAreRefused(t *testing.T) {
	t.Parallel()
	for _, word := range []string{"", "abc", "xyz0", "abcd ", "0x12", "-abcd", strings.Repeat("0", 32), strings.Repeat("a", 33), "abcd\x00", "ａｂｃｄ"} {
		if got, err := parseExecWord(word); err == nil {
			t.Errorf("parseExecWord(%q) = %q, want an error", word, got)
		}
	}
}

// FuzzExecWord: what is accepted is the beginning of an id.
func FuzzExecWord(f *testing.F) {
	for _, s := range []string{"abcd", "ABCD", strings.Repeat("0", 32), strings.Repeat("f", 32), "abc", "g000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		word, err := parseExecWord(s)
		if err != nil {
			return
		}
		id, err := wire.ParseExecID(string(word) + strings.Repeat("1", 32-len(word)))
		if err != nil || !strings.HasPrefix(id.String(), strings.ToLower(s)) || len(s) < 4 {
			t.Errorf("parseExecWord(%q) = %q, which begins no id: %v", s, word, err)
		}
	})
}
