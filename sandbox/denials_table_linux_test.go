package sandbox

// denialCase is a failing command, and what must be said of the sandbox's part in it.
type denialCase struct {
	id     string
	script string
	// denied: the sandbox is why it fails. want is then "kind op subject evidence" of one of the denials, empty where the case is known
	// to be missed.
	denied bool
	want   string
	policy func(*Policy)
	note   string
}

func limits(l Limits) func(*Policy) { return func(p *Policy) { p.Limits = l } }

func networked(m NetworkMode) func(*Policy) { return func(p *Policy) { p.Network.Mode = m } }

// denialCases: D and F are those of the study that chose this method, 22 that the sandbox stopped and 15 that it did not; the others are
// ten more of each kind, and ten more that it did not stop.
var denialCases = []denialCase{
	{id: "D01", denied: true, script: `touch $OUT/x`, want: "filesystem write $OUT/x policy"},
	{id: "D02", denied: true, script: `echo x > $OUT/x`, want: "filesystem write $OUT/x policy"},
	{id: "D03", denied: true, script: `echo x > ../out/x`, want: "filesystem write ../out/x policy"},
	{id: "D04", denied: true, script: `python3 -c "open('$OUT/x','w')"`, want: "filesystem write $OUT/x policy"},
	{id: "D05", denied: true, script: `mkdir $OUT/d`, want: "filesystem write $OUT/d policy"},
	{id: "D06", denied: true, script: `cp /bin/true /usr/local/bin/zz`, want: "filesystem write /usr/local/bin/zz policy"},
	{id: "D07", denied: true, script: `rm $OUT/f`, want: "filesystem write $OUT/f policy"},
	{id: "D08", denied: true, script: `python3 -c "import os; os.rename('$OUT/f','$OUT/g')"`, want: "filesystem write $OUT/f policy"},
	{id: "D09", denied: true, script: `sed -i s/a/b/ $OUT/f`, want: "filesystem write $OUT/* policy"},
	{id: "D10", denied: true, script: `tar cf - -C /bin true | tar xf - -C $OUT`, want: "filesystem write * maybe", note: "tar names the file without its folder"},
	{id: "D11", denied: true, script: `dd if=/dev/zero of=$OUT/x count=1`, want: "filesystem write $OUT/x policy"},
	{id: "D12", denied: true, script: `git init -q $OUT/repo`, want: "filesystem write $OUT/repo policy"},
	{id: "D13", denied: true, script: `echo x > .git/hooks/pre-commit`, want: "filesystem write .git/hooks/pre-commit policy"},
	{id: "D14", denied: true, script: `cat $B/home/.ssh/id`, want: "filesystem open $B/home/.ssh/id policy"},
	{id: "D15", denied: true, script: `curl -sS https://example.com`, want: "network connect the network kernel"},
	{id: "D16", denied: true, script: `python3 -c "import socket; socket.create_connection(('192.0.2.1',80),1)"`, want: "network connect the network kernel"},
	{id: "D17", denied: true, script: `getent hosts example.com`, want: "network connect the network kernel"},
	{id: "D18", denied: true, script: `unshare -U true`, want: "syscall unshare  kernel"},
	{id: "D19", denied: true, script: `python3 -c "import ctypes,sys; l=ctypes.CDLL(None); sys.exit(l.ptrace(0,0,0,0)!=0)"`, want: "syscall ptrace  kernel"},
	{id: "D20", denied: true, script: `touch $OUT/x 2>/dev/null || { echo could not save settings >&2; exit 1; }`, note: "missed: the program keeps the error to itself"},
	{id: "D21", denied: true, script: `python3 -c "
try: open('$OUT/x','w')
except OSError: raise SystemExit('could not save settings')"`, note: "missed, likewise"},
	{id: "D22", denied: true, script: `curl -s https://example.com >/dev/null 2>&1`, want: "network connect the network kernel"},

	{id: "F01", script: `cat missing`},
	{id: "F02", script: `grep zzz noexec`},
	{id: "F03", script: `cat locked`},
	{id: "F04", script: `touch ro/x`},
	{id: "F05", script: `./noexec`},
	{id: "F06", script: `echo "Permission denied (publickey)." >&2; exit 255`},
	{id: "F07", script: `echo "FAIL TestSandboxMode: want 1 got 2"; exit 1`},
	{id: "F08", script: `echo "chown: Operation not permitted (ignored)"; exit 1`},
	{id: "F09", script: `python3 -c "raise PermissionError('role missing')"`},
	{id: "F10", script: `curl -sS http://127.0.0.1:9`},
	{id: "F11", script: `ls /root`},
	{id: "F12", script: `python3 -c "import os; os.kill(1,9); os.setuid(0)"`},
	{id: "F13", script: `false`},
	{id: "F14", script: `sh -c 'kill -SEGV $$'`},
	{id: "F15", script: `no-such-command`},

	{id: "W01", denied: true, script: `echo x > /etc/zz`, want: "filesystem write /etc/zz policy"},
	{id: "W02", denied: true, script: `ln -s /etc/passwd /usr/bin/zz`, want: "filesystem write /usr/bin/zz policy"},
	{id: "W03", denied: true, script: `mv .git g`, want: "filesystem move or remove .git policy"},
	{id: "W04", denied: true, script: `ln .git/config c`, want: "filesystem link .git/config policy"},
	{id: "W05", denied: true, script: `git config user.name me`, want: "filesystem write .git/config policy"},
	{id: "W06", denied: true, script: `perl -e 'open(F, ">", "/var/lib/zz") or die "/var/lib/zz: $!"'`, want: "filesystem write /var/lib/zz policy"},
	{id: "W07", denied: true, script: `install -m 755 /bin/true /usr/bin/zz`, want: "filesystem write /usr/bin/zz policy"},
	{id: "W08", denied: true, script: `ls $B/home/.ssh`, want: "filesystem open $B/home/.ssh policy"},
	{id: "W09", denied: true, script: `cat /run/docker.sock`, want: "filesystem open /run/docker.sock policy"},
	{id: "W10", denied: true, script: `touch x`, want: "filesystem write x policy", policy: func(p *Policy) { p.Mode = ReadOnly }},
	{id: "W11", denied: true, script: `ls /home/somebody`, want: "filesystem open /home/somebody policy", policy: func(p *Policy) { p.View = ViewMinimal }},
	{id: "W12", denied: true, script: `printf 'error: open /etc/zz: \033[31mread-only file system\033[0m (os error 30)\n' >&2; touch /etc/zz`, want: "filesystem write /etc/zz policy"},

	{id: "N01", denied: true, script: `python3 -c "import urllib.request as u; u.urlopen('http://example.com')"`, want: "network connect the network kernel"},
	{id: "N02", denied: true, script: `git clone -q https://example.com/x.git`, want: "network connect the network kernel"},
	{id: "N03", denied: true, script: `perl -MSocket -e 'socket(S,PF_INET,SOCK_STREAM,0); connect(S,sockaddr_in(80,inet_aton("192.0.2.7"))) or die "$!"'`, want: "network connect the network kernel"},
	{id: "N04", denied: true, script: `python3 -c "import socket; s=socket.socket(socket.AF_INET6); s.connect(('2001:db8::1',80))"`, want: "network connect the network kernel"},
	{id: "N05", denied: true, script: `python3 -c "import socket; s=socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.sendto(b'x',('192.0.2.53',53))"`, want: "network connect the network kernel"},
	{id: "N06", denied: true, script: `curl -sS http://169.254.169.254/latest`, want: "network connect the network kernel"},
	{id: "N07", denied: true, script: `curl -sS --noproxy '*' https://example.com`, want: "network connect the network kernel", policy: networked(NetworkProxy)},
	{id: "N08", denied: true, script: `python3 -c "import socket; socket.create_connection(('192.0.2.1',80),1)"`, want: "network connect the network kernel", policy: func(p *Policy) { p.Network.Session = "s" }},
	{id: "N09", denied: true, script: `getent ahosts a.example b.example`, want: "network connect the network kernel"},
	{id: "N10", denied: true, script: `sh -c 'exec 3<>/dev/tcp/192.0.2.1/80' 2>/dev/null || python3 -c "import socket; socket.getaddrinfo('x.example',1)" 2>/dev/null`, want: "network connect the network kernel"},
	{id: "N11", denied: true, script: `echo "npm error request failed, reason: getaddrinfo EAI_AGAIN registry.example" >&2; exit 1`, want: "network connect  maybe", note: "nothing but the words: said as a maybe"},

	{id: "S01", denied: true, script: `$P mount; false`, want: "syscall mount  kernel"},
	{id: "S02", denied: true, script: `cp /bin/true s && chmod u+s s`, want: "syscall * kernel", note: "which of the chmod calls depends on the C library"},
	{id: "S03", denied: true, script: `python3 -c "import socket; socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)"`, want: "syscall socket  kernel"},
	{id: "S04", denied: true, script: `python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)"`, want: "syscall socket  kernel"},
	{id: "S05", denied: true, script: `dmesg`, want: "syscall syslog  kernel", note: "where dmesg reads /dev/kmsg first, that is not there"},
	{id: "S06", denied: true, script: `unshare -n true`, want: "syscall unshare  kernel"},
	{id: "S07", denied: true, script: `chroot / true`, want: "syscall chroot  kernel"},
	{id: "S08", denied: true, script: `nsenter -t $$ -n true`, want: "syscall setns  kernel"},
	{id: "S09", denied: true, script: `python3 -c "import ctypes,sys; sys.exit(ctypes.CDLL(None).syscall(321,0,0,0)!=0)"`, want: "syscall bpf  kernel", note: "the number is that of amd64"},
	{id: "S10", denied: true, script: `hostname other`, want: "syscall sethostname  kernel"},
	{id: "S11", denied: true, script: `setpriv --reuid 0 true; umount /tmp`, want: "syscall umount2  kernel"},

	{id: "L01", denied: true, script: `exec head -c 9000000 /dev/zero > big`, want: "limit write a longer file  kernel", policy: limits(Limits{FileBytes: 1 << 20})},
	{id: "L02", denied: true, script: `while :; do :; done`, want: "limit use more processor time  kernel", policy: limits(Limits{CPUSeconds: 1})},

	{id: "G01", script: `cat /nonexistent/file`},
	{id: "G02", script: `python3 -c "open('missing')"`},
	{id: "G03", script: `mkdir sub && rmdir sub/x`},
	{id: "G04", script: `echo "the disk of the customer is a Read-only file" >&2; exit 3`},
	{id: "G05", script: `cat locked ro/none 2>&1; exit 1`},
	{id: "G06", script: `git rev-parse no-such-ref`},
	{id: "G07", script: `python3 -c "import socket; socket.create_connection(('127.0.0.1',9))"`},
	{id: "G08", script: `touch /tmp/x && ln /tmp/x ./y`, note: "across file systems of the command's own"},
	{id: "G09", script: `ulimit -n 3; cat noexec noexec`},
	{id: "G10", script: `sh -c 'exit 126'`},
	{id: "G11", script: `test -w locked || { echo "locked: Permission denied: /etc/shadow.d is not yours"; exit 1; }`},
	{id: "G12", script: `timeout 1 sleep 10`},
}
