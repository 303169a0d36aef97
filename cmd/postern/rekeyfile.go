package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/postern-relay/postern/keys"
)

// rekeyFile says how the replacement of an executor's key stands, in its state folder beside the keys.
// `postern executor rekey` begins it, the daemon goes on with it.
type rekeyFile struct {
	overlap time.Duration    // how long both keys are served
	served  time.Duration    // how long they have been: running time, so that no clock that is set ends it early
	retire  []keys.PublicKey // replaced keys of which the relay does not know yet
}

const rekeyFileName = "rekey"

func readRekeyFile(path string) (rekeyFile, error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return rekeyFile{}, nil
	}
	if err != nil {
		return rekeyFile{}, err
	}
	var f rekeyFile
	for i, line := range strings.Split(strings.TrimRight(string(content), "\n"), "\n") {
		word, value, _ := strings.Cut(line, " ")
		err := fmt.Errorf("unknown word %q", word)
		switch word {
		case "overlap":
			f.overlap, err = time.ParseDuration(value)
		case "served":
			f.served, err = time.ParseDuration(value)
		case "retire":
			var key keys.PublicKey
			key, err = keys.ParsePublicKey(value)
			f.retire = append(f.retire, key)
		}
		if err != nil {
			return rekeyFile{}, fmt.Errorf("%s:%d: %w", path, i+1, err)
		}
	}
	return f, nil
}

func (f rekeyFile) write(path string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "overlap %v\nserved %v\n", f.overlap, f.served.Round(time.Second))
	for _, key := range f.retire {
		fmt.Fprintf(&text, "retire %s\n", key)
	}
	return replaceFile(path, text.String())
}
