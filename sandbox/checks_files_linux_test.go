package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// fileChecks try to read what is hidden and to write outside the roots.
var fileChecks = []check{
	{
		id: "F01", attempt: "read a hidden directory of keys", script: `try "cat $B/home/.ssh/id"; try "ls $B/home/.ssh"`, want: "refused\nrefused",
		host: "the key is as it was", see: same("home/.ssh/id", "SECRET"), carried: "view",
	},
	{
		id: "F02", attempt: "read a hidden file", script: `try "cat $B/daemon.key"; try "echo x > $B/daemon.key"`, want: "refused\nrefused",
		host: "the file is as it was", see: same("daemon.key", "SECRET"), carried: "view",
	},
	{
		id: "F03", attempt: "write beside the root", script: `try "echo x > $OUT/file"`, want: "refused",
		host: "the file is as it was", see: outsideUntouched, carried: several,
	},
	{
		id: "F04", attempt: "create files in /, /etc and /usr", script: `for d in / /etc /usr; do try "echo x > $d/$ID"; done`, want: "refused\nrefused\nrefused",
		host: "no such file", see: missing("/ID", "/etc/ID", "/usr/ID"), carried: several,
	},
	{
		id: "F05", attempt: "leave the root by dot-dot", script: `cd $WS/sub; try "echo x > ../../out/file"`, want: "refused",
		host: "the file is as it was", see: outsideUntouched, carried: several,
	},
	{
		id: "F06", attempt: "leave the root by a symbolic link", script: `ln -s $OUT/file $WS/l; try "echo x > $WS/l"`, want: "refused",
		host: "the file is as it was", see: outsideUntouched, carried: several,
	},
	{
		id: "F07", attempt: "write while a folder is exchanged with a link to the outside, 2000 times", script: `$P race $WS $OUT`, want: "exchanged",
		host: "no new file", see: every(missing("out/new"), outsideUntouched), carried: several,
	},
	{
		id: "F08", attempt: "hard link to a file outside", script: `try "ln $OUT/file $WS/h"`, want: "refused",
		host: "no link", see: missing("ws/h"), carried: several,
	},
	{
		id: "F09", attempt: "leave the view through /proc/PID/root and cwd", want: "refused\nrefused\nrefused",
		script: `try "echo x > /proc/1/root$OUT/file"; try "echo x > /proc/self/root$OUT/file"; try "echo x > /proc/self/cwd/../out/file"`,
		host:   "the file is as it was", see: outsideUntouched, carried: several,
	},
	{
		id: "F10", attempt: "open a file by its handle, around every path", script: `$P handle`, want: "EPERM", carried: several, uncertain: "seccomp",
	},
	{
		id: "F11", attempt: "write to a FIFO outside, which a read-only mount lets through", script: `$P fifo $OUT/fifo; $P fifo $WS/fifo`, want: "EACCES\nOK",
		prepare: fifo("out/fifo", "ws/fifo"), carried: "landlock", note: "the FIFO in the root can be used",
	},
	{
		id: "F12", attempt: "make a block device, find the machine's", want: "EPERM|EACCES\nend",
		script: `$P mknod $WS/d; for d in vda sda nvme0n1 mem kmsg kvm fuse; do test -e /dev/$d && echo $d; done; echo end`,
		host:   "no device", see: missing("ws/d"), carried: "view", note: "what /dev holds is the view; the node is refused by several",
	},
	{
		id: "F13", attempt: "run a set-uid root program", script: `PATH=$SETUID; $P ids`, want: "{uid} {uid}", carried: several,
	},
	{
		id: "F14", attempt: "plant a set-uid file in the root", want: "EPERM\nENOSYS\nENOENT|EPERM\nrefused\nrefused\nplain",
		script: `$P create-setuid $WS/n; cp /bin/true $WS/s; try "chmod u+s $WS/s"; try "chmod 2755 $WS/s"; chmod 755 $WS/s && echo plain`,
		host:   "no file has such a bit", see: noSetID, carried: "seccomp",
	},
	{
		id: "F15", attempt: "lock a readable file of the host", script: `$P flock $OUT/file`, want: "OK",
		carried: acceptedHole, note: "a nuisance to tools of the host that lock the same file; reading needs the same rights",
	},
}

// protectionChecks try to change the protected names of a root.
var protectionChecks = []check{
	{
		id: "P01", attempt: "change .git/config", script: `try "echo x > $WS/.git/config"`, want: "refused",
		host: "the file is as it was", see: configUntouched, carried: "view",
	},
	{
		id: "P02", attempt: "leave a hook", script: `try "echo x > $WS/.git/hooks/pre-commit"`, want: "refused",
		host: "no hook", see: missing("ws/.git/hooks/pre-commit"), carried: "view",
	},
	{
		id: "P03", attempt: "rename or remove .git", script: `try "mv $WS/.git $WS/g"; try "rm -rf $WS/.git"`, want: "refused\nrefused",
		host: "it is as it was", see: configUntouched, carried: "view",
	},
	{
		id: "P04", attempt: "hard link into .git", script: `try "ln $WS/.git/config $WS/c && echo x > $WS/c"`, want: "refused",
		host: "no link", see: every(missing("ws/c"), configUntouched), carried: "view",
	},
	{
		id: "P05", attempt: "rename the root itself", script: `try "mv $WS ${WS}2"`, want: "refused",
		host: "it is where it was", see: every(missing("ws2"), configUntouched), carried: several,
	},
	{
		id: "P06", attempt: "take the protecting mount off", script: `$P umount $WS/.git; try "echo x > $WS/.git/config"`, want: "EPERM\nrefused",
		host: "the file is as it was", see: configUntouched, carried: "view", note: "the view carries the second line; the call itself is refused by several",
	},
	{
		id: "P07", attempt: "write to the root in read-only mode", script: `try "echo x > $WS/n"`, want: "refused",
		policy: func(_ *stage, p *Policy) { p.Mode = ReadOnly },
		host:   "no such file", see: missing("ws/n"), carried: several,
	},
	{
		id: "P08", attempt: "make a repository where none is", script: `cd $WS; try "git init -q ."; try "mkdir -p .git/hooks"; try "rmdir .git && mkdir .git"`, want: "refused\nrefused\nrefused",
		prepare: func(s *stage) error { return os.RemoveAll(s.path("ws/.git")) },
		host:    "the placeholder is gone afterwards", see: missing("ws/.git"), carried: "view",
	},
	{
		id: "P09", attempt: "make the root a symbolic link before the command", refused: true, want: syscall.ELOOP.Error(),
		prepare: func(s *stage) error { return os.Symlink("out", s.path("evil")) },
		policy:  func(s *stage, p *Policy) { p.Roots = []string{s.path("evil")} },
		script:  `echo x > $B/evil/new`, host: "no such file; a root below the link is refused too", carried: byDaemon,
		see: every(missing("out/new"), func(s *stage) error {
			_, err := s.launcher.Start(noContext, Policy{Mode: WorkspaceWrite, Roots: []string{s.path("evil/sub")}}, Command{Argv: []string{"true"}})
			if !errors.Is(err, syscall.ELOOP) {
				return fmt.Errorf("a root below the link: %v", err)
			}
			return nil
		}),
	},
	{
		id: "P10", attempt: "make a protected name a symbolic link before the command", refused: true, want: syscall.ELOOP.Error(),
		prepare: func(s *stage) error { return os.Symlink("../out", s.path("ws/.codex")) },
		script:  `echo x > $WS/.codex/new`, host: "no such file, and no placeholder of a name that comes later", see: missing("out/new", "ws/.agents"), carried: byDaemon,
	},
}

var configUntouched = same("ws/.git/config", "conf")

func noSetID(s *stage) error {
	return filepath.WalkDir(s.ws, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			return fmt.Errorf("%s has mode %v", strings.TrimPrefix(path, s.base), st.Mode())
		}
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	})
}
