package keys

import (
	"fmt"
	"io"
	"slices"
)

// KnownExecutor is one line of a client's known_executors: what a name on the command line stands for.
type KnownExecutor struct {
	Alias string
	Key   PublicKey // the key that the executor must prove
	Relay RelayURL  // the relay through which it is reached
}

// KnownExecutors is the content of a client's known_executors. It is immutable and safe for concurrent use. The zero value
// and nil know none.
type KnownExecutors struct {
	list    []KnownExecutor
	lines   []int // where each of the list stands in its file, from 1
	byAlias map[string]int
}

// ParseKnownExecutors reads the executors that a client trusts, one a line: "ALIAS KEY RELAY-URL". Blank lines and lines that
// start with # are passed over. The name is that of the file, for errors. One bad line refuses the whole file, as does an
// alias that is given twice; one executor may have several aliases.
func ParseKnownExecutors(name string, r io.Reader) (*KnownExecutors, error) {
	known := &KnownExecutors{byAlias: make(map[string]int)}
	err := eachLine(name, r, func(number int, line string) error {
		executor, err := parseKnownExecutor(line)
		if err != nil {
			return err
		}
		if _, taken := known.byAlias[executor.Alias]; taken {
			return fmt.Errorf("alias %q is given twice", executor.Alias)
		}
		known.byAlias[executor.Alias] = len(known.list)
		known.list = append(known.list, executor)
		known.lines = append(known.lines, number)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return known, nil
}

// parseKnownExecutor reads one line.
func parseKnownExecutor(line string) (KnownExecutor, error) {
	columns := fields(line)
	if len(columns) != 3 {
		return KnownExecutor{}, fmt.Errorf("line has %d fields: want ALIAS KEY RELAY-URL", len(columns))
	}
	if err := checkName(columns[0]); err != nil {
		return KnownExecutor{}, err
	}
	key, err := parseKeyOf(Executor, columns[1])
	if err != nil {
		return KnownExecutor{}, err
	}
	relay, err := ParseRelayURL(columns[2])
	if err != nil {
		return KnownExecutor{}, err
	}
	return KnownExecutor{Alias: columns[0], Key: key, Relay: relay}, nil
}

// Lookup returns the executor with the alias.
func (k *KnownExecutors) Lookup(alias string) (KnownExecutor, bool) {
	if k == nil {
		return KnownExecutor{}, false
	}
	i, found := k.byAlias[alias]
	if !found {
		return KnownExecutor{}, false
	}
	return k.list[i], true
}

// All returns the executors in the order of the file, as a copy.
func (k *KnownExecutors) All() []KnownExecutor {
	if k == nil {
		return nil
	}
	return slices.Clone(k.list)
}
