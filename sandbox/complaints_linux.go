package sandbox

import (
	slashpath "path"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/sys/unix"
)

// complaints reads what a command printed last, in the C locale, for errors that the policy explains. Each must have both: the
// name of an error, and a path for which the policy gives just that error. A file that is merely not readable, or not there, is not
// the sandbox's doing.
type complaints struct {
	setup  *setup
	dir    string // where the command began; relative names are taken from there
	proven bool   // that it tried the network, by the kernel
	found  []Denial
	mounts []hostMount // the machine's; nil: not looked at
}

// Bounds of what is looked at: lines of programs that fail are short, and few.
const (
	maxComplaintLine  = 2 << 10
	maxComplaintLines = 400
)

// phrases are the names that programs and languages give to an error; in lower case.
var phrases = []struct {
	errno unix.Errno
	texts []string
}{
	{unix.EROFS, []string{"read-only file system", "erofs", "errno 30]", "os error 30)", "readonlyfilesystem"}},
	{unix.EACCES, []string{"permission denied", "eacces", "errno 13]", "os error 13)", "accessdeniedexception"}},
	{unix.EBUSY, []string{"device or resource busy", "ebusy", "errno 16]", "os error 16)"}},
	{unix.EXDEV, []string{"invalid cross-device link", "exdev", "errno 18]", "os error 18)", "cross-device link"}},
	{unix.ENOENT, []string{"no such file or directory", "enoent", "errno 2]", "os error 2)", "nosuchfileexception", "cannot find the file", "no such file"}},
}

// lookUps are what programs say when names cannot be resolved or nobody be reached.
var lookUps = []string{
	"temporary failure in name resolution", "could not resolve host", "name or service not known", "network is unreachable",
	"eai_again", "getaddrinfo", "no route to host", "server misbehaving",
}

func (c *complaints) read(output []byte) []Denial {
	lines := strings.FieldsFunc(string(output), func(r rune) bool { return r == '\n' || r == '\r' })
	if len(lines) > maxComplaintLines {
		lines = lines[len(lines)-maxComplaintLines:]
	}
	words, names := false, false // of a read-only file system, and of a network, that nothing proves
	for _, line := range lines {
		if len(line) > maxComplaintLine {
			line = line[:maxComplaintLine]
		}
		line = plainText(line)
		lower := lowerCase(line)
		for _, p := range phrases {
			if c.setup.reduced { // there is no view to compare with
				break
			}
			at, end := indexAny(lower, p.texts)
			if at < 0 {
				continue
			}
			if !c.explain(p.errno, line, at, end) && p.errno == unix.EROFS {
				words = true
			}
			break
		}
		if at, _ := indexAny(lower, lookUps); at >= 0 {
			names = true
		}
	}
	if words && len(c.found) == 0 {
		c.add(Denial{Kind: DenialFilesystem, Op: "write", Rule: c.writable(), Evidence: EvidenceWords})
	}
	if names && !c.proven && c.setup.network.Mode != NetworkHost {
		c.add(Denial{Kind: DenialNetwork, Op: "connect", Rule: noWayOut(c.setup.network.Mode), Evidence: EvidenceWords})
	}
	return c.found
}

// explain looks for a path in a line for which the policy gives the error that was named between at and end.
func (c *complaints) explain(errno unix.Errno, line string, at, end int) bool {
	for _, path := range candidates(line, at, end) {
		abs := path
		if rest, ok := strings.CutPrefix(path, "~/"); ok {
			abs = slashpath.Join(homeDir, rest)
		} else if !slashpath.IsAbs(path) {
			abs = slashpath.Join(c.dir, path)
		}
		if len(path) > unix.PathMax || strings.ContainsRune(path, 0) {
			continue
		}
		if d, ok := c.denied(errno, slashpath.Clean(abs)); ok {
			d.Kind, d.Subject, d.Evidence = DenialFilesystem, printable(path), EvidencePolicy
			c.add(d)
			return true
		}
	}
	return false
}

// denied tells whether the policy gives an error for a path, and which rule.
func (c *complaints) denied(errno unix.Errno, path string) (Denial, bool) {
	hidden := c.hides(path)
	switch errno {
	case unix.EROFS:
		if p := c.pieceOf(path); p == nil || p.readOnly {
			own := hidden == "" && c.visible(path) && c.hostReadOnly(path)
			return Denial{Op: "write", Rule: c.whyReadOnly(p, path)}, !c.writes(path) && !own
		}
	case unix.EACCES:
		if hidden != "" {
			return Denial{Op: "open", Rule: hidden + " is hidden from commands"}, true
		}
		// a FIFO is refused without its file system being asked
		if p := c.pieceOf(path); p != nil && p.readOnly && holdsFIFO(p.path, path) {
			return Denial{Op: "write", Rule: c.whyReadOnly(p, path)}, true
		}
	case unix.EBUSY:
		if p := c.pieceOf(path); p != nil && p.path == path {
			return Denial{Op: "move or remove", Rule: "it is protected, or a workspace itself"}, true
		}
	case unix.EXDEV:
		if p := c.pieceOf(path); p != nil && p.readOnly || p == nil && !c.writes(path) {
			return Denial{Op: "link", Rule: c.whyReadOnly(p, path)}, true
		}
	case unix.ENOENT:
		switch {
		case c.pieceOf(path) != nil: // it is shown
		case within(path, "/run") && !within(path, helperDir), within(path, "/var/run"):
			return Denial{Op: "open", Rule: "/run is hidden from commands"}, true
		case c.setup.minimal && !c.visible(path):
			return Denial{Op: "open", Rule: "outside the minimal view"}, true
		}
	}
	return Denial{}, false
}

// pieceOf is the innermost piece with a path, nil for what is not in one.
func (c *complaints) pieceOf(path string) *piece {
	var best *piece
	for i := range c.setup.pieces {
		if p := &c.setup.pieces[i]; within(path, p.path) && (best == nil || len(p.path) >= len(best.path)) {
			best = p
		}
	}
	return best
}

var temporary = []string{"/tmp", "/var/tmp", "/dev/shm", homeDir}

// writes tells whether the view lets the command write there.
func (c *complaints) writes(path string) bool {
	if p := c.pieceOf(path); p != nil {
		return !p.readOnly
	}
	return slices.ContainsFunc(temporary, func(dir string) bool { return within(path, dir) })
}

// hides is the hidden place that a path lies in.
func (c *complaints) hides(path string) string {
	for _, h := range c.setup.hidden {
		if within(path, h) {
			return h
		}
	}
	return ""
}

// visible tells whether a minimal view has the place of a path.
func (c *complaints) visible(path string) bool {
	if c.pieceOf(path) != nil || path == "/" {
		return true
	}
	top, _, _ := strings.Cut(path[1:], "/")
	return systemDirs[top] || within(path, "/var/tmp")
}

func (c *complaints) whyReadOnly(p *piece, path string) string {
	switch {
	case p != nil && c.setup.readOnly:
		return "the workspaces are read-only in this mode"
	case p != nil && slashpath.Base(p.path) != "" && slices.Contains(defaultProtected, slashpath.Base(p.path)):
		return p.path + " is protected"
	case p != nil:
		return p.path + " is read-only"
	}
	return c.writable()
}

// writable is the rule about writing, with what it allows.
func (c *complaints) writable() string {
	var roots []string
	for _, p := range c.setup.pieces {
		if !p.readOnly {
			roots = append(roots, p.path)
		}
	}
	return "outside the writable roots (allowed: " + strings.Join(append(roots, "/tmp", "HOME"), ", ") + ")"
}

func (c *complaints) add(d Denial) {
	for i := range c.found {
		f := &c.found[i]
		count := f.Count
		f.Count = d.Count
		same := *f == d
		f.Count = count
		if same {
			f.Count++
			return
		}
	}
	d.Count = 1
	if len(c.found) < maxDenials {
		c.found = append(c.found, d)
	}
}

// candidates are what may be the path in a line that names an error between at and end: what is quoted, then what is absolute, each the
// nearest first, then the words on both sides of the error's name, and last the name of a program that begins the line.
func candidates(line string, at, end int) []string {
	var all []string
	add := func(s string) {
		if s = strings.TrimSpace(s); s != "" && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	distance := func(from, to int) int { return max(at-to, from-end, 0) }
	var begins string
	for _, places := range [][]span{quotedNames(line), absolutePaths(line)} {
		slices.SortStableFunc(places, func(a, b span) int { return distance(a.from, a.to) - distance(b.from, b.to) })
		for _, p := range places {
			if p.from == 0 {
				begins = line[:p.to]
			} else {
				add(line[p.from:p.to])
			}
		}
	}
	before := strings.Split(strings.TrimRight(line[:at], " ([:"), ": ")
	for i := len(before) - 1; i >= 0; i-- {
		if words := strings.Fields(before[i]); len(words) > 1 {
			add(words[len(words)-1])
		}
		add(before[i])
	}
	if _, after, ok := strings.Cut(line[end:], ": "); ok {
		add(after)
	}
	add(begins)
	return all
}

// lowerCase leaves every byte at its place, which strings.ToLower does not.
func lowerCase(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func indexAny(s string, texts []string) (at, end int) {
	for _, t := range texts {
		if i := strings.Index(s, t); i >= 0 {
			return i, i + len(t)
		}
	}
	return -1, -1
}

// printable is a name without what a terminal obeys, or what makes a text look like another one.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(name, "?"))
}
