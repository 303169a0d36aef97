package journal

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/postern-relay/postern/wire"
)

// The kinds of records.
const (
	kindEpoch  = 1 + iota // first in the file
	kindStart             // Start
	kindEnd               // Outcome
	kindForget            // the result is gone
	kindEntry             // all of an exec, written by a compaction
	kindUptime            // the executor has run for so long
)

// record is any record on its way in, and start and epoch records on their way out.
type record struct {
	Kind uint8 `cbor:"1,keyasint"`
	Start
	Epoch     *wire.ID `cbor:"30,keyasint,omitempty"`
	Outcome   *Outcome `cbor:"31,keyasint,omitempty"`
	Forgotten bool     `cbor:"32,keyasint,omitempty"`
}

type endRecord struct {
	Kind      uint8       `cbor:"1,keyasint"`
	Principal string      `cbor:"2,keyasint"`
	ID        wire.ExecID `cbor:"3,keyasint"`
	Outcome
}

var (
	encoder = must(cbor.EncOptions{Sort: cbor.SortCoreDeterministic}.EncMode())
	decoder = must(cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, UTF8: cbor.UTF8DecodeInvalid}.DecMode())
)

func must[T any](m T, err error) T {
	if err != nil {
		panic(err)
	}
	return m
}

func encode(v any) ([]byte, error) { return encoder.Marshal(v) }

// replay applies one record to what is known.
func (j *Journal) replay(entries map[Key]*Entry, payload []byte) error {
	var head struct {
		Kind uint8 `cbor:"1,keyasint"`
	}
	if err := decoder.Unmarshal(payload, &head); err != nil {
		return fmt.Errorf("record %d: %w", j.records+1, err)
	}
	if (j.records == 0) != (head.Kind == kindEpoch) {
		return errors.New("it does not begin with a state epoch, or has two")
	}
	j.records++
	switch head.Kind {
	case kindEpoch, kindStart, kindEntry, kindUptime:
		var r record
		if err := decoder.Unmarshal(payload, &r); err != nil {
			return fmt.Errorf("record %d: %w", j.records, err)
		}
		if head.Kind == kindEpoch {
			if r.Epoch == nil || *r.Epoch == (wire.ID{}) {
				return errors.New("no state epoch")
			}
			j.epoch = *r.Epoch
			j.passed(r.Uptime)
			return nil
		}
		if head.Kind == kindUptime {
			j.passed(r.Uptime)
			return nil
		}
		e := &Entry{Start: r.Start, Outcome: r.Outcome, Forgotten: r.Forgotten}
		entries[Key{r.Principal, r.ID}] = e
		j.passed(e.Uptime)
		if e.Outcome != nil {
			j.passed(e.Outcome.Uptime)
		}
	case kindEnd, kindForget:
		var r endRecord
		if err := decoder.Unmarshal(payload, &r); err != nil {
			return fmt.Errorf("record %d: %w", j.records, err)
		}
		j.passed(r.Uptime)
		e := entries[Key{r.Principal, r.ID}]
		switch {
		case e == nil: // dropped by a compaction that came before its last record
		case head.Kind == kindForget:
			e.Forgotten = true
		default:
			e.Outcome = &r.Outcome
		}
	default:
		return fmt.Errorf("record %d is of kind %d: it was written by a newer version", j.records, head.Kind)
	}
	return nil
}

// passed takes over running time that a record tells of.
func (j *Journal) passed(ms int64) {
	j.base = max(j.base, time.Duration(ms)*time.Millisecond)
}

// bootID is the kernel's name for this run of the machine.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
