package keys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// createWhole creates path with the content, or returns an error that matches fs.ErrExist. It writes a temporary file and
// links it, so that path appears whole or not at all, whatever stops the machine in between.
func createWhole(path string, content []byte) error {
	temp, err := writeTemp(path, func(file *os.File) error {
		_, err := file.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	defer os.Remove(temp)
	err = os.Link(temp, path)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		// Some file systems have no hard links. Without them a crash can leave a short file, which is refused when read.
		err = createDirectly(path, content)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// createDirectly creates path exclusively and removes it again when it cannot be written in full.
func createDirectly(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = closeSynced(file, err); err != nil {
		_ = os.Remove(path)
	}
	return err
}

// replaceWhole replaces or creates path with the content in one step.
func replaceWhole(path string, content []byte, prepare func(*os.File) error) error {
	temp, err := writeTemp(path, func(file *os.File) error {
		if err := prepare(file); err != nil {
			return err
		}
		_, err := file.Write(content)
		return err
	})
	if err != nil {
		return err
	}
	if err := os.Rename(temp, path); err != nil {
		_ = os.Remove(temp)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// writeTemp makes a file of mode 0600 beside path, lets fill write it and brings it to disk. After an error no file is left.
func writeTemp(path string, fill func(*os.File) error) (temp string, err error) {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*.tmp")
	if err != nil {
		return "", err
	}
	if err := closeSynced(file, fill(file)); err != nil {
		_ = os.Remove(file.Name())
		return "", err
	}
	return file.Name(), nil
}

// closeSynced closes file, after bringing it to disk when all went well so far, and returns the first error.
func closeSynced(file *os.File, err error) error {
	if err == nil {
		err = file.Sync()
	}
	if closeErr := file.Close(); err == nil {
		err = closeErr
	}
	return err
}
