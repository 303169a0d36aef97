package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"github.com/postern-relay/postern/keys"
)

// rekeyFile says how the replacement of an executor's key stands, in its state folder beside the keys.
// `postern executor rekey` begins it, the daemon goes on with it.
type rekeyFile struct {
	overlap  time.Duration    // how long both keys are served
	served   time.Duration    // how long they have been: running time, so that no clock that is set ends it early
	admitted keys.PublicKey   // the next key, once the relay admits it; zero: not yet
	retire   []keys.PublicKey // replaced keys of which the relay does not know yet
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
		case "admitted":
			f.admitted, err = keys.ParsePublicKey(value)
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

// changeRekeyFile changes the file in the state folder in one step: the daemon and the command both do, and neither may undo
// what the other has written. A file that says nothing any more is removed.
func changeRekeyFile(state string, change func(*rekeyFile) error) error {
	path := filepath.Join(state, rekeyFileName)
	lock, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := awaitFile(lock); err != nil {
		return fmt.Errorf("lock %s: %w", path, err)
	}
	f, err := readRekeyFile(path)
	if err != nil {
		return err
	}
	before := f
	if err := change(&f); err != nil {
		return err
	}
	switch {
	case reflect.DeepEqual(f, before):
		return nil
	case reflect.DeepEqual(f, rekeyFile{}):
		return os.Remove(path)
	}
	return f.write(path)
}

func (f rekeyFile) write(path string) error {
	var text strings.Builder
	fmt.Fprintf(&text, "overlap %v\nserved %v\n", f.overlap, f.served.Round(time.Second))
	if !f.admitted.IsZero() {
		fmt.Fprintf(&text, "admitted %s\n", f.admitted)
	}
	for _, key := range f.retire {
		fmt.Fprintf(&text, "retire %s\n", key)
	}
	return replaceFile(path, text.String())
}
