//go:build !unix

package keys

import "os"

// modesMatter is false where access is decided by lists that os.FileMode does not show.
const modesMatter = false

const openNonblock = 0

// syncDir does nothing: folders cannot be synced here.
func syncDir(string) error { return nil }

// lockFolderOf does nothing: two processes that extend one file at the same moment can lose one of the lines here, never
// produce a broken one.
func lockFolderOf(string) (unlock func(), err error) { return func() {}, nil }

// keepOwner does nothing: a new file inherits the access list of its folder.
func keepOwner(*os.File, os.FileInfo) error { return nil }
