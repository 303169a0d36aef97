package journal

import (
	"fmt"
	"iter"
	"os"
	"path/filepath"

	"github.com/postern-relay/postern/executor/recordlog"
)

// roomStep is a few thousand starts.
const roomStep = 1 << 20

// Bloated reports whether a compaction would make the file much smaller.
func (j *Journal) Bloated() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.records > 3*j.live+10_000
}

// Compact writes the file anew with these entries only. It waits for recordings under way, and
// others wait for it.
func (j *Journal) Compact(entries iter.Seq[Entry]) error {
	j.recording.Lock()
	defer j.recording.Unlock()
	return j.rewrite(entries)
}

// rewrite replaces the file, which is durable when it returns. On an error the old one stays.
func (j *Journal) rewrite(entries iter.Seq[Entry]) (err error) {
	fresh, err := recordlog.Create(j.path + ".new")
	if err != nil {
		return fmt.Errorf("journal of execs: %w", err)
	}
	defer func() {
		if err != nil {
			fresh.Close()
			os.Remove(j.path + ".new")
			err = fmt.Errorf("journal of execs: %w", err)
		}
	}()
	fresh.MakeRoom(roomStep)
	records, live := 0, 0
	write := func(r record) error {
		b, err := encode(r)
		if err != nil {
			return err
		}
		records++
		_, err = fresh.Append(b)
		return err
	}
	if err := write(record{Kind: kindEpoch, Epoch: &j.epoch, Start: Start{Uptime: j.Uptime().Milliseconds()}}); err != nil {
		return err
	}
	if entries != nil {
		for e := range entries {
			live++
			if err := write(record{Kind: kindEntry, Start: e.Start, Outcome: e.Outcome, Forgotten: e.Forgotten}); err != nil {
				return err
			}
		}
	}
	if err := fresh.Sync(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(j.path))
	if err != nil {
		return err
	}
	defer dir.Close()
	if err := os.Rename(j.path+".new", j.path); err != nil {
		return err
	}
	// From here on the new file is the journal, whatever else fails: what was recorded in the old
	// one would be gone.
	if err := dir.Sync(); err != nil {
		fresh.Fail(err)
	}
	old := j.file
	j.file = fresh
	j.mu.Lock()
	j.records, j.live = records, live
	j.mu.Unlock()
	if old != nil {
		old.Close()
	}
	return nil
}
