//go:build toolchains

package executor

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/wire"
)

const homeInside = "/run/postern/home"

func TestTemporaryFoldersAndHomeCanBeWrittenAndExecutedFrom(t *testing.T) {
	b := newBench(t)
	for _, folder := range []string{"/tmp", "/var/tmp", "/dev/shm", "$HOME", "$PWD"} {
		b.wants("cd "+folder+`
echo text > file
cp /bin/echo program
./program "$(cat file)" "$(mktemp -p . | wc -l)"
mkdir -p a/b && mv file a/b/ && rm -r a program && chmod 700 .`, "text 1")
	}
	b.wants("stat -c %a /tmp /var/tmp /dev/shm $HOME; [ -z \"${TMPDIR-}\" ] && mktemp -u | cut -c 1-9", "1777\n1777\n1777\n700\n/tmp/tmp.")
	// They are the command's own, and gone with it.
	b.run("touch /tmp/left /var/tmp/left /dev/shm/left $HOME/left left")
	b.wants("ls /tmp/left /var/tmp/left /dev/shm/left $HOME/left left 2>/dev/null || true", "left")
}

func TestAccountOfTheCommandIsConsistent(t *testing.T) {
	b := newBench(t, "python3")
	name := b.run("id -un")
	if name == "root" || b.run("id -u") == "0" {
		t.Errorf("commands run as %s", name)
	}
	if os.Geteuid() != 0 {
		if me, err := user.LookupId(strconv.Itoa(os.Geteuid())); err == nil && me.Username != name {
			t.Errorf("id says %s for %s", name, me.Username)
		}
	}
	b.wants(`echo $USER $LOGNAME $(whoami) $HOME; cd && pwd; getent passwd "$(id -u)" | cut -d : -f 1,6,7`,
		name+" "+name+" "+name+" "+homeInside+"\n"+homeInside+"\n"+name+":"+homeInside+":/bin/sh")
	b.wants(`python3 -c 'import grp, os, pwd; a = pwd.getpwuid(os.getuid()); print(a.pw_name, a.pw_dir, os.path.expanduser("~"), grp.getgrgid(os.getgid()).gr_gid == os.getgid())'`,
		name+" "+homeInside+" "+homeInside+" True")
	b.wants("stat -c %U . $HOME; touch new && stat -c %U new", name+"\n"+name+"\n"+name)
}

func TestTextIsUTF8AndTheTimeZoneIsTheMachines(t *testing.T) {
	b := newBench(t, "python3", "sort")
	b.wants("printf 'é\\nz\\na\\n' | sort", "a\nz\né")
	b.wants(`python3 -c 'import sys; print("é", sys.stdout.encoding, sys.getfilesystemencoding())'`, "é utf-8 utf-8")
	b.wants("touch é && ls && printf é | wc -m", "é\n1")
	// The zone is the one that a program outside sees, unless the request names another.
	if got, want := b.run("date +%z"), time.Now().Format("-0700"); got != want {
		t.Errorf("the zone is %s, want %s", got, want)
	}
	if zone, err := os.ReadFile("/etc/localtime"); err == nil {
		b.wants("sha256sum < /etc/localtime", fmt.Sprintf("%x  -", sha256.Sum256(zone)))
	}
	b.env = []string{"TZ=Asia/Tokyo"}
	b.wants("date -d @0 '+%F %T %Z'", "1970-01-01 09:00:00 JST")
}

func TestOnlyTheCommandsOwnProcessesAreThere(t *testing.T) {
	b := newBench(t, "ps")
	b.wants(`sleep 60 & until [ "$(cat /proc/$!/comm)" = sleep ]; do :; done
		ps -eo pid= -o comm= > list; awk '$1 != 1 { print $2 }' list | sort; rm list; kill $!`, "ps\nsh\nsleep")
}

func TestLimitsLeaveRoomToBuild(t *testing.T) {
	b := newBench(t)
	b.wants("ulimit -c; ulimit -f; ulimit -d; ulimit -v; ulimit -t", "0\nunlimited\nunlimited\nunlimited\nunlimited")
	atLeast := func(what string, least int) {
		t.Helper()
		got := b.run(what)
		if n, err := strconv.Atoi(got); got != "unlimited" && (err != nil || n < least) {
			t.Errorf("%s: %s, want %d or more", what, got, least)
		}
	}
	atLeast("ulimit -n", 1024)
	atLeast("ulimit -s", 8192)
	atLeast("awk '/^Max processes/ { print $3 }' /proc/self/limits", 1024)
	b.wants("umask; nproc | awk '{ print ($1 >= 1) }'", "0022\n1")
}

func TestInputMayBeAbsentEmptyOrClosed(t *testing.T) {
	b := newBench(t, "python3")
	b.wants("readlink /proc/self/fd/0; cat; echo end", "/dev/null\nend")
	b.wants("exec <&-; python3 -c 'import sys; print(sys.stdin)'; sh -c 'echo child'; true | cat", "None\nchild")
	for _, input := range []string{"", "some\ntext"} {
		e := b.start(wire.ExecParams{Argv: []string{"sh", "-c", "cat; echo end"}, Stdin: true}, []byte(input))
		if e.code != 0 || e.stdout != input+"end\n" {
			t.Errorf("with the input %q: %+v", input, e)
		}
	}
	b.wants("exec >&- 2>&-; echo x || true", "")
}

func TestTerminalIsOne(t *testing.T) {
	b := newBench(t, "stty")
	e := b.start(wire.ExecParams{Argv: []string{"sh", "-c", "tty; stty size; test -t 0 && test -t 1 && test -t 2 && echo $(ps -o tty= $$) > /dev/tty"}, TTY: &wire.WinSize{Rows: 33, Cols: 99}}, nil)
	if got := strings.ReplaceAll(e.stdout, "\r\n", "\n"); e.code != 0 || got != "/dev/pts/0\n33 99\npts/0\n" {
		t.Errorf("on a terminal: %d %q %q", e.code, got, e.stderr)
	}
}
