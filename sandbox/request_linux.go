package sandbox

// setup is what the init needs before it can confine itself.
type setup struct {
	full, readOnly bool
	minimal        bool
	reduced        bool // no view at all, nothing is sent
	pieces         []piece
	hidden         []string
	network        Network
	tmpBytes       int64
	passwd, group  string
}

// piece is a part of the host's tree that the view shows at the same path with
// other attributes: a root, or a protected entry below one.
type piece struct {
	path     string
	dev, ino uint64 // what the daemon saw there
	readOnly bool
	// tree is the mount already made by a root daemon, counted in the order in which
	// they are sent, or -1 when the init makes it. The init puts the descriptor here.
	tree int
	file bool // not a directory
}

func (s *setup) encode() []byte {
	var w writer
	w.flag(s.full)
	w.flag(s.readOnly)
	w.flag(s.minimal)
	w.num(uint64(len(s.pieces)))
	for _, p := range s.pieces {
		w.str(p.path)
		w.num(p.dev)
		w.num(p.ino)
		w.flag(p.readOnly)
		w.signed(int64(p.tree))
		w.flag(p.file)
	}
	w.strs(s.hidden)
	w.num(uint64(s.network.Mode))
	w.flag(s.network.Session != "")
	w.signed(s.tmpBytes)
	w.str(s.passwd)
	w.str(s.group)
	return w.b
}

func decodeSetup(b []byte) (*setup, error) {
	r := reader{b: b}
	s := &setup{full: r.flag(), readOnly: r.flag(), minimal: r.flag()}
	for range r.count() {
		s.pieces = append(s.pieces, piece{path: r.str(), dev: r.num(), ino: r.num(), readOnly: r.flag(), tree: int(r.signed()), file: r.flag()})
	}
	s.hidden = r.strs()
	s.network.Mode = NetworkMode(r.num())
	if r.flag() {
		s.network.Session = "shared" // its name is nobody's business in there
	}
	s.tmpBytes = r.signed()
	s.passwd = r.str()
	s.group = r.str()
	return s, r.done()
}

// run is the one command of an init.
type run struct {
	argv       []string
	arg0       string
	env        []string
	dir        string
	umask      int
	limits     Limits
	full       bool
	held       bool // not to be executed before msgGo
	tty        bool
	rows, cols uint16
	watched    bool // its network is not the machine's
	shared     bool // others are in its network
	reduced    bool // confined by these rules alone
	rules      []reducedRule
}

func (c *run) encode() []byte {
	n := 256
	for _, l := range [][]string{c.argv, c.env} {
		for _, s := range l {
			n += len(s) + 3
		}
	}
	w := writer{b: make([]byte, 0, n)}
	w.strs(c.argv)
	w.str(c.arg0)
	w.strs(c.env)
	w.str(c.dir)
	w.num(uint64(c.umask))
	l := c.limits
	for _, v := range []uint64{l.OpenFiles, l.Processes, l.FileBytes, l.DataBytes, l.CPUSeconds} {
		w.num(v)
	}
	w.flag(c.full)
	w.flag(c.held)
	w.flag(c.tty)
	w.num(uint64(c.rows))
	w.num(uint64(c.cols))
	w.flag(c.watched)
	w.flag(c.shared)
	w.flag(c.reduced)
	w.num(uint64(len(c.rules)))
	for _, r := range c.rules {
		w.str(r.path)
		w.num(r.access)
		w.flag(r.pinned)
		w.num(r.dev)
		w.num(r.ino)
	}
	return w.b
}

func decodeRun(b []byte) (*run, error) {
	r := reader{b: b}
	c := &run{argv: r.strs(), arg0: r.str(), env: r.strs(), dir: r.str(), umask: int(r.num())}
	c.limits = Limits{OpenFiles: r.num(), Processes: r.num(), FileBytes: r.num(), DataBytes: r.num(), CPUSeconds: r.num()}
	c.full, c.held, c.tty = r.flag(), r.flag(), r.flag()
	c.rows, c.cols = uint16(r.num()), uint16(r.num())
	c.watched, c.shared, c.reduced = r.flag(), r.flag(), r.flag()
	for range r.count() {
		c.rules = append(c.rules, reducedRule{path: r.str(), access: r.num(), pinned: r.flag(), dev: r.num(), ino: r.num()})
	}
	return c, r.done()
}
