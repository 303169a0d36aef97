package keys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// maxKeyFile bounds a private key file: the key, and some lines of comment.
const maxKeyFile = 4 << 10

// ReadFile reads a private key file: lines that start with #, and one line with the key. It refuses a file that group or
// others can read or write, a key of another kind, anything but a regular file, and an over-long file. A missing file is an
// error that matches [fs.ErrNotExist]. Errors never show the content. On systems without file modes the mode is not checked.
func ReadFile(path string, kind Kind) (*PrivateKey, error) {
	key, err := ReadAnyFile(path)
	if err == nil && key.Kind() != kind {
		return nil, fmt.Errorf("key file %s holds %s key; %s is wanted here", path, key.Kind().noun(), kind.noun())
	}
	return key, err
}

// ReadAnyFile is [ReadFile] for a key of whatever kind, for those who only want to show its public half.
func ReadAnyFile(path string) (*PrivateKey, error) {
	content, err := readKeyFile(path)
	if err != nil {
		return nil, err
	}
	key, err := parseKeyFile(content)
	if err != nil {
		return nil, fmt.Errorf("key file %s: %w", path, err)
	}
	return key, nil
}

// readKeyFile opens before it checks, so that what was checked is what is read.
func readKeyFile(path string) ([]byte, error) {
	file, err := openForReading(path)
	if err != nil {
		return nil, fmt.Errorf("open key file: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("key file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("key file %s is not a regular file", path)
	}
	if mode := info.Mode().Perm(); modesMatter && mode&0o077 != 0 {
		return nil, fmt.Errorf("key file %s has mode %04o, so others than its owner can use it: chmod 600 %s", path, mode, path)
	}
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, fmt.Errorf("read key file: %w", err)
	}
	if len(content) > maxKeyFile {
		return nil, fmt.Errorf("key file %s is larger than %d bytes", path, maxKeyFile)
	}
	return content, nil
}

// parseKeyFile wants exactly one line that is neither blank nor a comment.
func parseKeyFile(content []byte) (*PrivateKey, error) {
	secret := ""
	for line := range strings.Lines(string(content)) {
		line = strings.Trim(line, " \t\r\n")
		if line == "" || line[0] == '#' {
			continue
		}
		if secret != "" {
			return nil, errors.New("holds more than one line")
		}
		secret = line
	}
	if secret == "" {
		return nil, errors.New("holds no key: remove it, or restore it from a backup")
	}
	return ParsePrivateKey(secret)
}

// WriteFile writes k to a new file of mode 0600, with the public key in a comment. It never overwrites: a path that exists is
// an error that matches [fs.ErrExist]. When it returns, file and folder entry are on disk; after an error, or a crash at any
// moment, path does not exist or is whole.
func WriteFile(path string, k *PrivateKey) error {
	content := "# postern private key, never to be shared; its public key:\n# " + k.Public().String() + "\n" + k.Secret() + "\n"
	err := createWhole(path, []byte(content))
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("key file %s exists and is not overwritten: %w", path, fs.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("write key file %s: %w", path, err)
	}
	return nil
}

// LoadOrGenerate is [ReadFile], except that a missing file is made with a new key. The folder must exist. Of several that call
// it at once for one path, one creates the key and all return the same.
func LoadOrGenerate(path string, kind Kind) (k *PrivateKey, created bool, err error) {
	k, err = ReadFile(path, kind)
	if !errors.Is(err, fs.ErrNotExist) {
		return k, false, err
	}
	k, err = Generate(kind)
	if err != nil {
		return nil, false, err
	}
	err = WriteFile(path, k)
	if errors.Is(err, fs.ErrExist) {
		k, err = ReadFile(path, kind)
		return k, false, err
	}
	if err != nil {
		return nil, false, err
	}
	return k, true, nil
}

// openForReading opens without waiting, so that a pipe in place of a file is refused rather than waited for.
func openForReading(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|openNonblock, 0)
}
