package main

import (
	"os"

	"golang.org/x/term"

	"github.com/postern-relay/postern/wire"
)

// terminal is the one this process has on its standard input, if it is one.
type terminal struct {
	file  *os.File
	saved *term.State
}

// size is the terminal's, or 24 by 80 where there is none or it does not know.
func (t *terminal) size() wire.WinSize {
	cols, rows, err := term.GetSize(int(t.file.Fd()))
	if err != nil || cols <= 0 || rows <= 0 {
		return wire.WinSize{Rows: 24, Cols: 80}
	}
	return wire.WinSize{Rows: uint16(min(rows, 0xffff)), Cols: uint16(min(cols, 0xffff))}
}

// exists reports whether there is one.
func (t *terminal) exists() bool { return term.IsTerminal(int(t.file.Fd())) }

// raw hands every key to the command, until restore.
func (t *terminal) raw() error {
	saved, err := term.MakeRaw(int(t.file.Fd()))
	t.saved = saved
	return err
}

// restore undoes raw; it may be called twice.
func (t *terminal) restore() {
	if t.saved != nil {
		_ = term.Restore(int(t.file.Fd()), t.saved) // a terminal that is gone needs none
		t.saved = nil
	}
}

// terminalName is what TERM says here.
func terminalName() string {
	if t := os.Getenv("TERM"); t != "" {
		return t
	}
	return "xterm"
}
