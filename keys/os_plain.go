//go:build !linux && !darwin

package keys

import (
	"os"
	"time"
)

// fileID tells one state of a file from another, by what every system has.
type fileID struct {
	size, mtime int64
}

// changed is the time of the last change of content.
func (id fileID) changed() time.Time { return time.Unix(0, id.mtime) }

// identify takes the identity from what Stat returned.
func identify(info os.FileInfo) fileID {
	return fileID{size: info.Size(), mtime: info.ModTime().UnixNano()}
}
