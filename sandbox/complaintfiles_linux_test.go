package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A command may complain of any path, and the daemon may look at more of them than the command.
func TestComplaintsTellNothingOfWhatTheCommandDoesNotSee(t *testing.T) {
	secret, ws := outsideTmp(t), outsideTmp(t) // in /tmp a command has files of its own
	if err := unix.Mkfifo(filepath.Join(secret, "there"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(ws, "link")); err != nil {
		t.Fatal(err)
	}
	for _, place := range []struct {
		name   string
		path   string
		hidden []string
	}{
		{"outside", secret, nil}, {"hidden", secret, []string{secret}}, {"through a link", filepath.Join(ws, "link"), []string{secret}},
	} {
		for _, phrase := range []string{"Permission denied", "Read-only file system", "No such file or directory", "Device or resource busy", "Invalid cross-device link"} {
			said := func(name string) string {
				c := complaints{setup: &setup{readOnly: true, hidden: place.hidden, pieces: []piece{{path: ws, readOnly: true}}}, dir: ws}
				var all strings.Builder
				for _, d := range c.read(fmt.Appendf(nil, "cat: %s/%s: %s\n", place.path, name, phrase)) {
					d.Subject = ""
					all.WriteString(fmt.Sprintf("%+v\n", d))
				}
				return all.String()
			}
			if there, gone := said("there"), said("gone"); there != gone {
				t.Errorf("%s, %s: of a file that is there %q is said, of one that is not %q", place.name, phrase, there, gone)
			}
		}
	}
}

func TestFIFOInAReadOnlyRootIsDenied(t *testing.T) {
	ws := outsideTmp(t)
	if err := unix.Mkfifo(filepath.Join(ws, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"pipe": 1, "gone": 0} {
		c := complaints{setup: &setup{readOnly: true, pieces: []piece{{path: ws, readOnly: true}}}, dir: ws}
		if got := c.read([]byte("sh: cannot create " + name + ": Permission denied\n")); len(got) != want {
			t.Errorf("%s: %+v, want %d denials", name, got, want)
		}
	}
}

func TestMountListTellsWhatIsReadOnly(t *testing.T) {
	const list = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 8:2 / /usr ro,relatime - ext4 /dev/sda2 rw
24 22 8:3 / /mnt/two\040words rw - squashfs /dev/sda3 ro,errors=continue
25 23 8:4 / /usr/local rw - ext4 /dev/sda4 rw
26 22 8:5 / /over ro - ext4 /dev/sda5 rw
27 26 8:6 / /over rw - ext4 /dev/sda6 rw,errors=remount-ro
malformed
`
	for path, want := range map[string]bool{
		"/": false, "/etc/x": false, "/usr": true, "/usr/bin/x": true, "/usrlocal": false, "/usr/local/x": false,
		"/mnt/two words/x": true, "/mnt/two": false, "/over/x": false,
	} {
		if got := mountedReadOnly(parseMounts(list), path); got != want {
			t.Errorf("%s: read-only %v, want %v", path, got, want)
		}
	}
	for in, want := range map[string]string{`/a\040b`: "/a b", `/a\134b`: `/a\b`, `/a\0`: `/a\0`, `/a\999`: `/a\999`, `\`: `\`} {
		if got := plainMountPoint(in); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

// What is said of a command is read on terminals and in logs of others.
func TestDenialHasNothingThatATerminalObeys(t *testing.T) {
	for name, want := range map[string]string{
		"/etc/a\x1bP1\x1b\\b": `/etc/a?P1?\b`, "/etc/\u202eevil\u200b": "/etc/?evil?", "/etc/\u009b1m": "/etc/?1m", "/etc/\xff\xfe": "/etc/?",
		"/etc/Ä ö": "/etc/Ä ö",
	} {
		c := complaints{setup: &setup{}, dir: "/"}
		found := c.read([]byte("touch: cannot touch '" + name + "': Read-only file system\n"))
		if len(found) != 1 || found[0].Subject != want {
			t.Errorf("%q: said %+v, want the subject %q", name, found, want)
		}
	}
}

// What the view shows, or where there is no view, a missing file is just missing.
func TestMissingFileIsNoDenialWhereItWouldBeSeen(t *testing.T) {
	for _, c := range []struct {
		setup setup
		said  string
		want  int
	}{
		{setup{}, "cat: /run/shown/x: No such file or directory", 1},
		{setup{pieces: []piece{{path: "/run/shown", readOnly: true}}}, "cat: /run/shown/x: No such file or directory", 0},
		{setup{pieces: []piece{{path: "/run/shown", readOnly: true}}}, "cat: /run/other: No such file or directory", 1},
		{setup{reduced: true}, "cat: /run/shown/x: No such file or directory", 0},
		{setup{reduced: true}, "ln: failed to create hard link '/etc/x' => 'y': Invalid cross-device link", 0},
	} {
		if got := (&complaints{setup: &c.setup, dir: "/"}).read([]byte(c.said)); len(got) != c.want {
			t.Errorf("%+v: of %q %+v is said, want %d denials", c.setup, c.said, got, c.want)
		}
	}
}
