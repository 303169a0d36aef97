package sandbox

import (
	"fmt"
	"os"
)

// networkChecks try to reach somebody else.
var networkChecks = []check{
	{
		id: "N01", attempt: "a service of the host on 127.0.0.1", script: `$P dial tcp $ADDR; $P listen; $P interfaces`, want: "ECONNREFUSED\nOK\nlo OK",
		prepare: listen("tcp", "127.0.0.1:0"), host: "the service is there", carried: "namespaces", note: "the sandbox's own loopback works",
	},
	{
		id: "N02", attempt: "the internet, and the address of cloud metadata", script: `$P dial tcp 192.0.2.1:80; $P dial tcp 169.254.169.254:80`, want: "ENETUNREACH\nENETUNREACH",
		carried: "namespaces", unsafe: [2]string{"namespaces", "packets would leave the machine"},
	},
	{
		id: "N03", attempt: "tell a name server", script: `$P dial udp 192.0.2.53:53; try "getent hosts x.example.com"`, want: "ENETUNREACH\nrefused",
		carried: "namespaces", unsafe: [2]string{"namespaces", "packets would leave the machine"},
	},
	{
		id: "N04", attempt: "an abstract unix socket of the host", script: `$P dial unix $ADDR`, want: "ECONNREFUSED|EPERM",
		prepare: listen("unix", "@"), host: "the service is there", carried: several, uncertain: "namespaces",
		note: "Landlock of Linux 6.12 refuses it even in the host's network, before that the network namespace alone",
	},
	{
		id: "N05", attempt: "a unix socket in a hidden folder", script: `$P dial unix $ADDR`, want: "EACCES|ENOENT",
		prepare: listen("unix", "run/s"), host: "the service is there", carried: "view",
	},
	{
		id: "N06", attempt: "a unix socket that is visible and open to all", script: `$P dial unix $ADDR`, want: "OK",
		prepare: listen("unix", "out/s"), carried: acceptedHole, note: "a read-only mount does not stop connect: hide such a socket",
	},
	{
		id: "N07", attempt: "sockets of virtual machines, packets and the kernel's ciphers", want: "EAFNOSUPPORT\nEAFNOSUPPORT\nEAFNOSUPPORT\nOK\nOK", carried: "seccomp",
		script: `for s in "40 1 0" "17 3 0" "38 5 0" "1 1 0" "2 1 0"; do $P socket $s; done`, note: "unix and internet sockets can be made",
	},
	{id: "N08", attempt: "raw internet sockets", script: `$P socket 2 3 1; $P socket 10 3 58`, want: "EPERM\nEPERM", carried: several},
	{
		id: "N09", attempt: "netlink of audit, IPsec, netfilter, device events and diagnosis", carried: "seccomp",
		script: `for p in 9 6 12 15 4; do $P socket 16 3 $p; done`, want: "EAFNOSUPPORT\nEAFNOSUPPORT\nEAFNOSUPPORT\nEAFNOSUPPORT\nEAFNOSUPPORT",
	},
	{id: "N10", attempt: "change interfaces by netlink; reading them is allowed", script: `$P socket 16 3 0; $P interface-down`, want: "OK\nEPERM", carried: "capabilities"},
	{
		id: "N11", attempt: "an abstract unix socket of the host while sharing the host's network", script: `$P dial unix $ADDR`, want: "EPERM", carried: "landlock",
		policy: func(_ *stage, p *Policy) { p.Network.Mode = NetworkHost }, prepare: listen("unix", "@"), host: "the service is there",
	},
}

// resourceChecks try to use up the machine and to outlive the command.
var resourceChecks = []check{
	{
		id: "R01", attempt: "start processes without end", script: `$P fork 200`, want: "stopped", carried: "limits",
		policy: limited(Limits{Processes: 60}), host: "those that were started are killed", see: strays(10),
	},
	{
		id: "R02", attempt: "use more memory than the command may", script: `try "$P memory 450"`, want: "refused", carried: "limits",
		policy: limited(Limits{MemoryBytes: 320 << 20}), note: "of all processes together where there are cgroups, else of each",
	},
	{
		id: "R03", attempt: "use more memory than one process may", script: `try "$P memory 450"`, want: "refused", carried: "limits",
		policy: limited(Limits{DataBytes: 320 << 20}),
	},
	{
		id: "R04", attempt: "fill /tmp and /dev/shm", script: `try "head -c 9M /dev/zero > /tmp/$ID"; try "head -c 65M /dev/zero > /dev/shm/$ID"`, want: "refused\nrefused",
		policy: func(_ *stage, p *Policy) { p.TmpBytes = 8 << 20 },
		host:   "no such file", see: missing("/tmp/ID", "/dev/shm/ID"), carried: "view",
	},
	{
		id: "R05", attempt: "use up the inodes of /tmp", script: `$P files /tmp/$ID 270000`, want: "ENOSPC", carried: "view",
		host: "no such folder", see: missing("/tmp/ID"), unsafe: [2]string{"view", "the machine's own /tmp would be filled"}, slow: true,
	},
	{
		id: "R06", attempt: "write a large file to the root", script: `(head -c 4M /dev/zero > $WS/big) 2>/dev/null; echo ended`, want: "ended", carried: "limits",
		policy: limited(Limits{FileBytes: 1 << 20}), host: "the file has the size of the limit", see: sized("ws/big", 1<<20),
	},
	{id: "R07", attempt: "use more processor time than the command may", script: `try "$P spin 3"`, want: "refused", policy: limited(Limits{CPUSeconds: 1}), carried: "limits", slow: true},
	{id: "R08", attempt: "open more files than the command may", script: `ulimit -n; ulimit -Hn`, want: "256\n256", policy: limited(Limits{OpenFiles: 256}), carried: "limits"},
	{
		id: "R09", attempt: "leave a daemon behind", want: "up", carried: byPIDs, note: "the pipe of the command ends with its last process",
		script: `mkfifo $WS/f; (setsid sh -c "setsid sleep 1000 & echo up > $WS/f" &); read x < $WS/f; echo $x`,
		host:   "it is killed", see: strays(1),
	},
	{
		id: "R10", attempt: "leave processes that ignore every signal", script: stubbornTree, want: "up", carried: byPIDs,
		host: "they are killed", see: strays(1),
	},
	{
		id: "R11", attempt: "leave dead processes that nobody waits for", want: "none", carried: byInit,
		script: `i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done
			i=0; while [ $i -lt 300 ] && grep -qs "^State:.Z" /proc/[0-9]*/status; do i=$((i+1)); sleep 0.1; done
			test $i -lt 300 && echo none || echo zombies`,
		unsafe: [2]string{"view", "it would look at the machine's own processes"},
	},
	{
		id: "R12", attempt: "share /tmp with the host", script: `: > /tmp/$ID; ls /tmp | grep -c .; try "ls /tmp/$ID-host"`, want: "1\nrefused",
		prepare: hostTmp, host: "no file of the command", see: missing("/tmp/ID"), carried: "view",
	},
}

func limited(l Limits) func(*stage, *Policy) {
	return func(_ *stage, p *Policy) { p.Limits = l }
}

func sized(name string, want int64) func(*stage) error {
	return func(s *stage) error {
		st, err := os.Stat(s.path(name))
		if err == nil && st.Size() != want {
			err = fmt.Errorf("%s has %d bytes", name, st.Size())
		}
		return err
	}
}

func hostTmp(s *stage) error {
	name := "/tmp/" + s.mark("R12") + "-host"
	s.undo = append(s.undo, func() { os.Remove(name) })
	return os.WriteFile(name, nil, 0o644)
}
