package roster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postern-relay/postern/keys"
)

// The names of the two files in the folder of a roster.
const (
	ListedFile   = "tenants"
	EnrolledFile = "enrolled"
)

// Roster is who may use a relay. Make it with [Open]; its methods are safe for concurrent use. Of
// one folder there must be one Roster; commands that edit the files beside it use the same lock.
type Roster struct {
	log      *slog.Logger
	listed   *keys.File[*keys.Tenants]
	enrolled *keys.File[*keys.Tenants]
	path     string // of enrolled

	turns    turns                // of tenants, before changing
	changing sync.Mutex           // one change of enrolled at a time
	merging  sync.Mutex           // of the next two
	leftOut  map[string]bool      // reasons that were logged
	counted  map[keys.TokenID]int // the highest count of uses that was ever in force
	current  atomic.Pointer[keys.Tenants]
}

// Open reads the files of a folder. `tenants` must exist; `enrolled` is made when somebody joins. A
// file with one bad line is an error. A nil log discards.
func Open(dir string, log *slog.Logger) (*Roster, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	r := &Roster{log: log, path: filepath.Join(dir, EnrolledFile), leftOut: make(map[string]bool), counted: make(map[keys.TokenID]int)}
	var err error
	if r.listed, err = keys.WatchFile(filepath.Join(dir, ListedFile), keys.ParseTenants); err != nil {
		return nil, err
	}
	if r.enrolled, err = keys.WatchOptionalFile(r.path, keys.ParseTenants); err != nil {
		return nil, err
	}
	r.merge()
	return r, nil
}

// Current is who may use the relay now.
func (r *Roster) Current() *keys.Tenants { return r.current.Load() }

// Run follows changes of the files until ctx is done; a change is in force, then onChange is
// called. A bad file is refused whole, the log says so, and the old one stays in force: see [Roster.Refused].
func (r *Roster) Run(ctx context.Context, onChange func()) {
	var watching sync.WaitGroup
	follow := func(file *keys.File[*keys.Tenants], name string) {
		file.Run(ctx, func(*keys.Tenants) {
			r.merge()
			r.log.Info("list reread", "file", name)
			onChange()
		}, func(err error) {
			r.log.Error("list refused, the old one stays in force", "file", name, "err", err)
		})
	}
	watching.Go(func() { follow(r.listed, ListedFile) })
	watching.Go(func() { follow(r.enrolled, EnrolledFile) })
	watching.Wait()
}

// Reload reads both files at once. Of one that is bad what was in force stays, and is in the error; a good
// one is in force all the same: a mistake in one file must not keep a key in that was removed from the other.
func (r *Roster) Reload() error {
	err := errors.Join(r.listed.Reload(), r.enrolled.Reload())
	r.merge()
	return err
}

// Refused is what of the two files, as last looked at, is not in force; nil if all is.
func (r *Roster) Refused() error { return errors.Join(r.listed.Refused(), r.enrolled.Refused()) }

// merge puts both files in force. What the operator's file overrules is logged once.
func (r *Roster) merge() {
	r.merging.Lock()
	defer r.merging.Unlock()
	merged, leftOut := r.listed.Current().Merge(r.enrolled.Current())
	r.current.Store(merged)
	reasons := make(map[string]bool, len(leftOut))
	for _, err := range leftOut {
		reasons[err.Error()] = true
		if !r.leftOut[err.Error()] {
			r.log.Warn("an entry of the relay's own list is not in force", "file", EnrolledFile, "err", err)
		}
	}
	r.leftOut = reasons
	counted := make(map[keys.TokenID]int)
	for _, tenant := range merged.All() {
		for _, join := range merged.Joins(tenant.Name) {
			counted[join.ID] = max(join.Used, r.counted[join.ID])
		}
	}
	r.counted = counted
}

// used is how often a token was used. The count in the file goes down when an editor saves what it has read before a machine
// joined; that gives no use back.
func (r *Roster) used(join keys.Join) int {
	r.merging.Lock()
	defer r.merging.Unlock()
	return max(join.Used, r.counted[join.ID])
}

// change rewrites enrolled for a tenant, in its turn, and has it in force when it returns. What do decides by is what is in the
// file at that moment, and nobody changes it in between.
func (r *Roster) change(tenant string, joining bool, do func(edit *keys.TenantsEdit, current *keys.Tenants) error) error {
	done, busy := r.turns.take(tenant, joining)
	if busy != nil {
		return busy
	}
	defer done()
	r.changing.Lock()
	defer r.changing.Unlock()
	err := keys.RewriteTenants(r.path, func(edit *keys.TenantsEdit) error {
		// A file that is gone, or empty while somebody writes it, would come back with this change as all that it says.
		if len(edit.Before().All()) == 0 && len(r.enrolled.Current().All()) > 0 {
			return fmt.Errorf("%s is missing or empty, and machines are enrolled: restore it, or restart the relay to begin anew", r.path)
		}
		current, _ := r.listed.Current().Merge(edit.Before())
		return do(edit, current)
	})
	if err != nil {
		return err
	}
	if err := r.enrolled.Reload(); err != nil {
		return err
	}
	r.merge()
	return nil
}

// now is the relay's clock, with the second as its grain, as the files have it.
func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
