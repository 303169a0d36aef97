package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/postern-relay/postern/wire"
)

// The digits of a whole id, and the fewest that name one.
const (
	execIDDigits   = 2 * len(wire.ExecID{})
	fewestIDDigits = 4
)

// execWord is an exec as it stands on the command line: its id, or the beginning of that.
type execWord string

// parseExecWord checks the form of a word, in the small letters that ids are printed in.
func parseExecWord(s string) (execWord, error) {
	word := strings.ToLower(s)
	if strings.Trim(word, "0123456789abcdef") != "" || len(word) < fewestIDDigits || len(word) > execIDDigits {
		return "", fmt.Errorf("exec id %q: want %d hexadecimal digits, or at least the first %d of them", s, execIDDigits, fewestIDDigits)
	}
	if len(word) == execIDDigits {
		if _, err := wire.ParseExecID(word); err != nil {
			return "", err
		}
	}
	return execWord(word), nil
}

func parseExecWords(list []string) (words []execWord, err error) {
	for _, s := range list {
		word, err := parseExecWord(s)
		if err != nil {
			return nil, err
		}
		words = append(words, word)
	}
	return words, nil
}

// find is the exec that the word means. A whole id needs no question: whether it exists is
// answered when something is done with it.
func (w execWord) find(ctx context.Context, backend wire.ExecBackend, owner string) (wire.ExecRef, error) {
	if len(w) == execIDDigits {
		id, err := wire.ParseExecID(string(w))
		return wire.ExecRef{ID: id, Owner: owner}, err
	}
	infos, err := backend.List(ctx)
	if err != nil {
		return wire.ExecRef{}, err
	}
	var found []wire.ExecInfo
	for _, i := range infos {
		if strings.HasPrefix(i.ID.String(), string(w)) && (owner == "" || i.Owner == owner) {
			found = append(found, i)
		}
	}
	switch len(found) {
	case 0:
		return wire.ExecRef{}, wire.Errorf(wire.CodeNotFound, "no exec %s...", string(w))
	case 1:
		return wire.ExecRef{ID: found[0].ID, Owner: found[0].Owner}, nil
	}
	if found[0].ID == found[1].ID {
		return wire.ExecRef{}, wire.Errorf(wire.CodeConflict, "several principals have an exec %s: say whose with --owner", found[0].ID)
	}
	return wire.ExecRef{}, wire.Errorf(wire.CodeConflict, "%d execs begin with %s, such as %s and %s: give more digits", len(found), string(w), found[0].ID, found[1].ID)
}
