package main

import (
	"errors"
	"fmt"
)

// errLeft means that the user left the exec, which goes on.
var errLeft = errors.New("left")

// escapeAction is what an escape asks for.
type escapeAction int

const (
	noAction escapeAction = iota
	leaveAction
	helpAction
)

// escapes finds the escapes in what is typed, by the rules of ssh: the escape character counts at
// the beginning of a line only, and what follows it says what is meant. Everything else passes.
//
//	~.   leave
//	~?   list the escapes
//	~~   one ~
type escapes struct {
	char      byte // zero: there are none
	inLine    bool // something was typed since the last line end
	suspended bool // the escape character was typed and not passed on yet
}

// filter appends to dst what of src is for the command, and stops after an escape that asks for
// something. It returns how much of src it has used.
func (e *escapes) filter(dst, src []byte) (out []byte, used int, action escapeAction) {
	for i, c := range src {
		if e.suspended {
			e.suspended = false
			switch c {
			case '.':
				return dst, i + 1, leaveAction
			case '?':
				return dst, i + 1, helpAction
			case e.char: // typed twice: once
			default:
				dst = append(dst, e.char)
			}
		} else if c == e.char && e.char != 0 && !e.inLine {
			e.suspended = true
			continue
		}
		e.inLine = c != '\r' && c != '\n'
		dst = append(dst, c)
	}
	return dst, len(src), noAction
}

// help lists the escapes.
func (e *escapes) help() string {
	return fmt.Sprintf("Escapes, at the beginning of a line:\r\n  %[1]c.  leave; the command goes on\r\n  %[1]c?  this list\r\n  %[1]c%[1]c  type %[1]c", e.char)
}

// parseEscape reads --escape; zero is none.
func parseEscape(s string) (byte, error) {
	switch {
	case s == "none":
		return 0, nil
	case len(s) == 1 && s[0] > ' ' && s[0] <= '~' && s[0] != '.' && s[0] != '?':
		return s[0], nil
	}
	return 0, fmt.Errorf("--escape %q: want one visible character other than . and ?, or none", s)
}
