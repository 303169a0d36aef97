package keys

import (
	"os"
	"syscall"
	"time"
)

// fileID tells one state of a file from another.
type fileID struct {
	dev, ino     uint64
	size         int64
	mtime, ctime int64 // nanoseconds since 1970
}

// changed is the time of the last change of content or attributes.
func (id fileID) changed() time.Time { return time.Unix(0, id.ctime) }

// identify takes the identity from what Stat returned.
func identify(info os.FileInfo) fileID {
	id := fileID{size: info.Size(), mtime: info.ModTime().UnixNano()}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		id.dev, id.ino, id.ctime = uint64(stat.Dev), stat.Ino, stat.Ctimespec.Nano()
	}
	return id
}
