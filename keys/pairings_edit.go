package keys

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
)

// ReadPairings reads a client's pairings file with [ParsePairings]. It holds secrets, so it is refused when group or others can
// read or write it, as a key file is. A missing file is an error that matches [io/fs.ErrNotExist].
func ReadPairings(path string) (*Pairings, error) {
	read, err := readSettled(path)
	if err != nil {
		return nil, err
	}
	if err := checkPrivate(path, read); err != nil {
		return nil, err
	}
	return ParsePairings(path, bytes.NewReader(read.content))
}

// AddPairing adds a line to a client's pairings, or creates the file with mode 0600, in the manner of [AddKnownExecutor]. A
// pairing that is there already and equal is left as it is; another one of the same id is an error.
func AddPairing(path string, p Pairing) error {
	p.Expires = wholeSeconds(p.Expires)
	line, err := pairingLine(p)
	if err != nil {
		return fmt.Errorf("add token %s to %s: %w", p.ID, path, err)
	}
	return rewritePairings(path, func(content []byte, pairings *Pairings) ([]byte, error) {
		if old, listed := pairings.Lookup(p.ID); listed {
			if old.line() != line {
				return nil, fmt.Errorf("%s: token %s is there already, and differs", path, p.ID)
			}
			return nil, nil
		}
		return appendLine(content, line), nil
	})
}

// UpdatePairing puts p in the place of the line with its id; where there is none, the error matches [ErrNotListed]. A key that
// the file has as pinned stays so, whether or not p has it: of two programs that pin at the same moment none takes a use back.
// More keys than the token has uses are an error.
func UpdatePairing(path string, p Pairing) error {
	p.Expires = wholeSeconds(p.Expires)
	return rewritePairings(path, func(content []byte, pairings *Pairings) ([]byte, error) {
		old, listed := pairings.Lookup(p.ID)
		if !listed {
			return nil, fmt.Errorf("%s: token %s: %w", path, p.ID, ErrNotListed)
		}
		united := p
		united.Pinned = old.Pinned
		for _, key := range p.Pinned {
			if !slices.Contains(old.Pinned, key) {
				united.Pinned = append(united.Pinned, key)
			}
		}
		line, err := pairingLine(united)
		if err != nil {
			return nil, fmt.Errorf("update token %s in %s: %w", p.ID, path, err)
		}
		return withLine(content, pairings.lines[pairings.byID[p.ID]], line), nil
	})
}

// RemovePairing removes the line of a token; where there is none, the error matches [ErrNotListed].
func RemovePairing(path string, id TokenID) error {
	return rewritePairings(path, func(content []byte, pairings *Pairings) ([]byte, error) {
		place, listed := pairings.byID[id]
		if !listed {
			return nil, fmt.Errorf("%s: token %s: %w", path, id, ErrNotListed)
		}
		return withoutLine(content, pairings.lines[place]), nil
	})
}

// rewritePairings is rewrite for a file that holds secrets.
func rewritePairings(path string, change func([]byte, *Pairings) ([]byte, error)) error {
	read := func(path string) (trustFile, error) {
		read, err := readTrustFile(path)
		if err != nil {
			return trustFile{}, err
		}
		return read, checkPrivate(path, read)
	}
	return rewriteRead(path, read, ParsePairings, change)
}

// checkPrivate refuses a file that others than its owner can use.
func checkPrivate(path string, read trustFile) error {
	if mode := read.info.Mode().Perm(); modesMatter && mode&0o077 != 0 {
		return fmt.Errorf("pairings file %s has mode %04o, so others than its owner can use it: chmod 600 %s", path, mode, path)
	}
	return nil
}

// pairingLine writes a pairing as its line and refuses what would not be read as the same.
func pairingLine(p Pairing) (string, error) {
	line := p.line()
	parsed, err := parsePairing(line)
	if len(p.Pinned) == 0 {
		p.Pinned = nil // as it is read
	}
	if err != nil || !reflect.DeepEqual(parsed, p) {
		return "", orMalformed(err)
	}
	return line, nil
}
