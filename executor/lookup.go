package executor

import (
	"iter"
	"slices"

	"github.com/postern-relay/postern/wire"
)

// purpose is what a caller wants an exec for.
type purpose uint8

const (
	toWatch purpose = iota
	toAct           // signal, end or remove it
	toHold          // control it, and so type into it
)

// find is the exec that ref means for the caller, with its users counted up. A foreign one is as
// unknown as one that never was.
func (t *table) find(c Caller, ref wire.ExecRef, why purpose) (*execution, error) {
	t.mu.Lock()
	t.sweep()
	e, err := t.lookup(c, ref, why)
	t.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return t.use(e)
}

// lookup finds a ready entry. Callers hold mu.
func (t *table) lookup(c Caller, ref wire.ExecRef, why purpose) (*entry, error) {
	var found *entry
	for _, e := range t.entries[ref.ID] {
		switch {
		case !isClosed(e.ready):
		case !c.sees(e.Principal):
		case ref.Owner != "" && ref.Owner != e.Principal:
		case found != nil:
			return nil, wire.Errorf(wire.CodeConflict, "several principals have an exec %s: say whose", ref.ID)
		default:
			found = e
		}
	}
	switch {
	case found == nil:
		return nil, wire.Errorf(wire.CodeNotFound, "no exec %s", ref.ID)
	case why != toWatch && found.Principal != c.Principal && !c.ControlAll:
		return nil, wire.Errorf(wire.CodePolicy, "exec %s is another principal's: you may only watch it", ref.ID)
	case why == toHold && !c.mayHold(found.Starter):
		return nil, errNotHeld
	}
	return found, nil
}

var errNotHeld = wire.Errorf(wire.CodePolicy, "another key started this exec, and the rights of this one are narrowed: "+
	"it may watch, signal, end and remove it, and not take it over")

// sees reports whether the execs of a principal exist for the caller.
func (c Caller) sees(principal string) bool {
	return principal == c.Principal || c.ViewAll || c.ControlAll
}

func (t *table) list(c Caller) []wire.ExecInfo {
	t.mu.Lock()
	t.sweep()
	var infos []wire.ExecInfo
	for e := range t.each() {
		switch {
		case !c.sees(e.Principal):
		case e.kept():
			infos = append(infos, e.info())
		case e.exec != nil:
			infos = append(infos, e.exec.describe())
		}
	}
	t.mu.Unlock()
	slices.SortFunc(infos, func(a, b wire.ExecInfo) int { return a.Started.Compare(b.Started) })
	return infos
}

// each yields the ready entries. Callers hold mu.
func (t *table) each() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, entries := range t.entries {
			for _, e := range slices.Clone(entries) { // yield may drop some
				if isClosed(e.ready) && !yield(e) {
					return
				}
			}
		}
	}
}
