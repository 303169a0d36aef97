package wire

import (
	"bytes"

	"github.com/fxamacker/cbor/v2"
)

// sample is one message as a Go value and as the reference encoder is told it.
type sample struct {
	name    string
	message Message
	value   refMap
	tail    []byte // of Input and Output
}

func seq(first byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = first + byte(i)
	}
	return b
}

const most = 1<<64 - 1

// samples is every message, once with nothing that can be left out, and once with
// everything and at the limits of the numbers.
func samples() []sample {
	id, instance, epoch := ID(seq(1, 16)), ID(seq(0x21, 16)), ID(seq(0x41, 16))
	key := Bytes32(seq(0x61, 32))
	exec := ExecID(seq(0x81, 16))
	grace, zero := uint64(1500), uint64(0)
	text := string(bytes.Repeat([]byte("é"), MaxText/2))
	exit := &ExitStatus{Code: 3, Cause: CauseExited}
	return []sample{
		{
			"start minimal", &Start{ID: exec, Instance: instance, Attempt: 1, Argv: []cbor.ByteString{"true"}, Inherit: InheritCore, Sandbox: SandboxReadOnly},
			refMap{1: 1, 2: 0, 3: exec[:], 4: instance[:], 5: 1, 6: make([]byte, 16), 7: refArray{[]byte("true")}, 11: 1, 17: 1},
			nil,
		},
		{
			"start full", &Start{
				Deadline: 30000, ID: exec, Instance: instance, Attempt: most, Epoch: epoch, Argv: []cbor.ByteString{"sh", "", "\xff\xfe", "a b"},
				Arg0: "-sh", Dir: "/src/\xe9", Env: []cbor.ByteString{"A=", "B=\xff=1"}, Inherit: InheritAll, Exclude: []string{"AWS_*", "é"}, Umask: 0o777,
				Stdin: true, TTY: &WinSize{Rows: 24, Cols: 65535}, Merge: true, Sandbox: SandboxFullAccess, TimeoutMillis: 1 << 32, KillAfterMillis: 24, GraceMillis: &grace,
				Limits: &Limits{Memory: 1 << 30, Processes: 100, CPUMilli: 1500, CPUMillis: 60000, FileSize: 1, OpenFiles: 64, Output: 1 << 20, Tmp: 2},
				Roots:  []cbor.ByteString{"/w/\xff"}, View: ViewMinimal, OnFull: OnFullDrop, Detach: true,
				Network: &Network{Mode: NetworkAllowList, Allow: []string{"a.example:443", "b.example"}, Session: "dév"},
			},
			refMap{
				1: 1, 2: 30000, 3: exec[:], 4: instance[:], 5: uint64(most), 6: epoch[:],
				7: refArray{[]byte("sh"), []byte{}, []byte("\xff\xfe"), []byte("a b")}, 8: []byte("-sh"), 9: []byte("/src/\xe9"),
				10: refArray{[]byte("A="), []byte("B=\xff=1")}, 11: 3, 12: refArray{"AWS_*", "é"}, 13: 511, 14: true, 15: refArray{24, 65535}, 16: true, 17: 3,
				18: 1 << 32, 19: 24, 20: 1500, 23: 2, 24: true, 25: refMap{1: 1 << 30, 2: 100, 3: 1500, 4: 60000, 5: 1, 6: 64, 7: 1 << 20, 8: 2},
				26: refArray{[]byte("/w/\xff")}, 27: 2, 28: refMap{1: 2, 2: refArray{"a.example:443", "b.example"}, 3: "dév"},
			},
			nil,
		},
		{
			"start without grace", &Start{ID: exec, Instance: instance, Attempt: 1, Argv: []cbor.ByteString{"true"}, Inherit: InheritNone, Sandbox: SandboxWorkspaceWrite, GraceMillis: &zero},
			refMap{1: 1, 2: 0, 3: exec[:], 4: instance[:], 5: 1, 6: make([]byte, 16), 7: refArray{[]byte("true")}, 11: 2, 17: 2, 20: 0},
			nil,
		},
		{"attach minimal", &Attach{ID: exec, Instance: instance, Attempt: 1}, refMap{1: 2, 2: 0, 3: exec[:], 4: instance[:], 5: 1, 6: 0}, nil},
		{
			"attach full", &Attach{Deadline: most, ID: exec, Instance: instance, Attempt: 256, After: 65536, Control: true, LogEpoch: &epoch, Owner: "as=é", Generation: 7},
			refMap{1: 2, 2: uint64(most), 3: exec[:], 4: instance[:], 5: 256, 6: 65536, 7: true, 8: epoch[:], 9: "as=é", 10: 7},
			nil,
		},
		{"control list", &Control{Deadline: 23, Verb: VerbList}, refMap{1: 3, 2: 23, 3: 1}, nil},
		{
			"control signal", &Control{Deadline: 23, Verb: VerbSignal, ID: &exec, Owner: "ci", Instance: &instance, Request: 1, Signal: "HUP"},
			refMap{1: 3, 2: 23, 3: 2, 4: exec[:], 5: "ci", 6: instance[:], 7: 1, 8: "HUP"},
			nil,
		},
		{
			"control terminate", &Control{Deadline: 23, Verb: VerbTerminate, ID: &exec, Instance: &instance, Request: most, GraceMillis: 1500},
			refMap{1: 3, 2: 23, 3: 3, 4: exec[:], 6: instance[:], 7: uint64(most), 9: 1500},
			nil,
		},
		{"control remove", &Control{Verb: VerbRemove, ID: &exec, Instance: &instance, Request: 2}, refMap{1: 3, 2: 0, 3: 4, 4: exec[:], 6: instance[:], 7: 2}, nil},
		{"control of a later verb", &Control{Deadline: 24, Verb: 255}, refMap{1: 3, 2: 24, 3: 255}, nil},
		{"input empty", &Input{}, refMap{1: 16, 2: 0}, nil},
		{"input full", &Input{Offset: 1 << 40, Data: []byte("ls\n\x00\xff")}, refMap{1: 16, 2: 1 << 40}, []byte("ls\n\x00\xff")},
		{"input end", &InputEnd{Offset: 255}, refMap{1: 17, 2: 255}, nil},
		{"resize", &Resize{Request: 1, Size: WinSize{Rows: 0, Cols: 256}}, refMap{1: 18, 2: 1, 3: refArray{0, 256}}, nil},
		{"signal", &SignalMessage{Request: 2, Signal: "INT"}, refMap{1: 19, 2: 2, 3: "INT"}, nil},
		{"signal in real time", &SignalMessage{Request: most, Signal: "RTMIN+30"}, refMap{1: 19, 2: uint64(most), 3: "RTMIN+30"}, nil},
		{"terminate minimal", &Terminate{Request: 3}, refMap{1: 20, 2: 3}, nil},
		{"terminate full", &Terminate{Request: 3, GraceMillis: 65535}, refMap{1: 20, 2: 3, 3: 65535}, nil},
		{"ack", &Ack{Seq: 23}, refMap{1: 21, 2: 23}, nil},
		{
			"started minimal", &Started{ID: exec, LogEpoch: epoch, Window: 1, Sandbox: SandboxReadOnly},
			refMap{1: 32, 2: exec[:], 3: epoch[:], 4: 0, 5: 1, 6: 0, 7: 0, 8: 1, 10: 0, 11: 0},
			nil,
		},
		{
			"started full", &Started{
				ID: exec, LogEpoch: epoch, Generation: 2, Window: OutputWindow, InputLimit: 1 << 20, InputOffset: 1 << 20, Sandbox: SandboxFullAccess,
				Roots: []cbor.ByteString{"/w\xff", "/x"}, GraceMillis: 120000, Unix: -1, TTY: true, InputClosed: true,
				Limits: &Limits{Memory: 1 << 20}, View: ViewFull, Last: most, Owner: "as=ci", Detach: true, OnFull: OnFullBlock, Network: &Network{Mode: NetworkHost},
			},
			refMap{
				1: 32, 2: exec[:], 3: epoch[:], 4: 2, 5: 4 << 20, 6: 1 << 20, 7: 1 << 20, 8: 3, 9: refArray{[]byte("/w\xff"), []byte("/x")},
				10: 120000, 11: -1, 12: true, 13: true, 14: refMap{1: 1 << 20}, 15: 1, 16: uint64(most), 17: "as=ci", 18: true, 19: 1, 20: refMap{1: 3},
			},
			nil,
		},
		{"output empty", &Output{Seq: 1, Stream: Stdout}, refMap{1: 33, 2: 1, 3: 1}, nil},
		{"output full", &Output{Seq: most, Stream: Terminal, Data: bytes.Repeat([]byte{0xa1}, 300)}, refMap{1: 33, 2: uint64(most), 3: 3}, bytes.Repeat([]byte{0xa1}, 300)},
		{"gap", &GapMessage{From: 1, To: 256, Bytes: 1 << 33}, refMap{1: 34, 2: 1, 3: 256, 4: 1 << 33}, nil},
		{"exit minimal", &Exit{Seq: 9, Status: ExitStatus{Cause: CauseExited}}, refMap{1: 35, 2: 9, 3: refMap{1: 0, 3: 1}}, nil},
		{
			"exit by a signal", &Exit{Seq: 24, Status: ExitStatus{Signal: "KILL", Cause: CauseOOM, PipesHeld: true, Strays: 70000, Hit: LimitMemory | LimitOutput}},
			refMap{1: 35, 2: 24, 3: refMap{1: 0, 2: "KILL", 3: 4, 4: true, 5: 70000, 6: 17}},
			nil,
		},
		{
			"exit with denials", NewExit(2, ExitStatus{Code: 1, Cause: CauseExited, Denials: []Denial{
				{Kind: DenialFilesystem, Op: "write", Subject: "/etc/hosts", Rule: "outside", Evidence: EvidencePolicy, Count: 2},
				{Kind: DenialSyscall, Op: "unshare", Rule: "never", Evidence: EvidenceKernel},
			}}),
			refMap{1: 35, 2: 2, 3: refMap{1: 1, 3: 1}, 4: refArray{
				refMap{1: 1, 2: "write", 3: "/etc/hosts", 4: "outside", 5: 3, 6: 2}, refMap{1: 3, 2: "unshare", 4: "never", 5: 1},
			}},
			nil,
		},
		{"exit with a code", &Exit{Seq: 24, Status: ExitStatus{Code: 255, Cause: CauseTimedOut}}, refMap{1: 35, 2: 24, 3: refMap{1: 255, 3: 3}}, nil},
		{"input ack minimal", &InputAck{}, refMap{1: 36, 2: 0, 3: 0}, nil},
		{"input ack full", &InputAck{Offset: 65536, Limit: 1 << 32, Closed: true}, refMap{1: 36, 2: 65536, 3: 1 << 32, 4: true}, nil},
		{"done minimal", &Done{Request: 1}, refMap{1: 37, 2: 1}, nil},
		{"done full", &Done{Request: 1, Code: CodeEnded, Text: "ended"}, refMap{1: 37, 2: 1, 3: 21, 4: "ended"}, nil},
		{"superseded", &Superseded{Generation: 3}, refMap{1: 38, 2: 3}, nil},
		{"list empty", &List{}, refMap{1: 39, 2: refArray{}}, nil},
		{
			"list full", &List{Execs: []ListItem{
				{ID: exec, Unix: 1700000000000, Sandbox: SandboxReadOnly},
				{ID: exec, Unix: 0, Sandbox: SandboxFullAccess, Roots: []cbor.ByteString{"/w"}, GraceMillis: 1, TTY: true, Attached: true, Exit: exit, Owner: "ci", Command: "make -j4", Detach: true, EndedUnix: 1, Last: 24},
			}, More: true},
			refMap{1: 39, 2: refArray{
				refMap{1: exec[:], 2: 1700000000000, 3: 1},
				refMap{1: exec[:], 2: 0, 3: 3, 4: refArray{[]byte("/w")}, 5: 1, 6: true, 7: true, 8: refMap{1: 3, 3: 1}, 9: "ci", 10: "make -j4", 11: true, 12: 1, 13: 24},
			}, 3: true},
			nil,
		},
		{"ping", &Ping{Clock: 15000}, refMap{1: 48, 2: 15000}, nil},
		{"refused minimal", &Refused{Code: CodeNoChannel}, refMap{1: 49, 2: 8}, nil},
		{"refused full", &Refused{Code: 65535, Text: text, RetryMillis: 1000}, refMap{1: 49, 2: 65535, 3: text, 4: 1000}, nil},
		{"hello minimal", &Hello{Versions: Versions, Random: key}, refMap{1: 64, 2: refArray{1, 1}, 3: key[:]}, nil},
		{
			"hello full", &Hello{Versions: VersionRange{Min: 1, Max: 255}, Random: key, Replaces: &id, Software: "postern 1.2"},
			refMap{1: 64, 2: refArray{1, 255}, 3: key[:], 4: id[:], 5: "postern 1.2"},
			nil,
		},
		{
			"welcome minimal", &Welcome{Versions: Versions, Session: id, Random: key, Limits: SessionLimits{Message: 1, Window: 1, Sandbox: 1}},
			refMap{1: 65, 2: refArray{1, 1}, 3: id[:], 4: key[:], 5: refMap{1: 1, 2: 1, 4: 1}},
			nil,
		},
		{
			"welcome full", &Welcome{Versions: Versions, Session: id, Random: key, Limits: SessionLimits{Message: MaxMessage, Window: OutputWindow, GraceMillis: 86400000, Sandbox: 3}, Next: &key, Previous: &key},
			refMap{1: 65, 2: refArray{1, 1}, 3: id[:], 4: key[:], 5: refMap{1: 1 << 20, 2: 4 << 20, 3: 86400000, 4: 3}, 10: key[:], 11: key[:]},
			nil,
		},
		{"hop hello minimal", &HopHello{Role: RoleClient, Versions: Versions, Instance: instance}, refMap{1: 80, 2: 2, 3: refArray{1, 1}, 6: instance[:]}, nil},
		{
			"hop hello full", &HopHello{Role: RoleExecutor, Versions: Versions, Name: "builder-1", Join: &JoinProof{Token: id, Secret: key, MAC: key}, Instance: instance, Software: "postern"},
			refMap{1: 80, 2: 1, 3: refArray{1, 1}, 4: "builder-1", 5: refMap{1: id[:], 2: key[:], 3: key[:]}, 6: instance[:], 8: "postern"},
			nil,
		},
		{"hop welcome minimal", &HopWelcome{Versions: Versions}, refMap{1: 81, 2: refArray{1, 1}, 3: 0, 7: refMap{}, 8: 0}, nil},
		{
			"hop welcome full", &HopWelcome{
				Versions: Versions, Connection: 7, Tenant: "acme", Name: "b", NextRelay: &key, Generation: 3, Time: 1700000000000,
				Limits: HopLimits{Circuits: 128, BytesPerSecond: 50e6, IdleMillis: 30000, CircuitMillis: 86400000, Header: 1024},
			},
			refMap{1: 81, 2: refArray{1, 1}, 3: 7, 4: "acme", 5: "b", 6: 3, 7: refMap{1: 128, 2: 50000000, 3: 30000, 4: 86400000, 5: 1024}, 8: 1700000000000, 9: key[:]},
			nil,
		},
		{"hop ping", &HopPing{Number: 1}, refMap{1: 82, 2: 1}, nil},
		{"hop pong", &HopPong{Number: most}, refMap{1: 83, 2: uint64(most)}, nil},
		{"hop goaway minimal", &HopGoaway{Code: CodeShutdown}, refMap{1: 84, 2: 23}, nil},
		{"hop goaway full", &HopGoaway{Code: CodeShutdown, Text: "restart", WaitMillis: 1500}, refMap{1: 84, 2: 23, 3: "restart", 4: 1500}, nil},
		{"hop notice minimal", &HopNotice{Code: CodeDuplicate}, refMap{1: 85, 2: 11}, nil},
		{"hop notice full", &HopNotice{Code: CodeDuplicate, Text: "a clone"}, refMap{1: 85, 2: 11, 3: "a clone"}, nil},
		{"hop next key", &HopNextKey{Key: key}, refMap{1: 86, 2: key[:]}, nil},
		{"reply minimal", &Reply{}, refMap{1: 112}, nil},
		{"reply full", &Reply{Code: CodeBusy, Text: "later", RetryMillis: 250}, refMap{1: 112, 2: 6, 3: "later", 4: 250}, nil},
		{"list executors", &ListExecutors{}, refMap{1: 113}, nil},
		{"executor item minimal", &ExecutorItem{Executor: key}, refMap{1: 114, 2: key[:], 3: ""}, nil},
		{
			"executor item full", &ExecutorItem{Executor: key, Name: "b", Online: true, Seen: 1700000000000, Token: &id, MAC: &key, Follows: &key},
			refMap{1: 114, 2: key[:], 3: "b", 4: true, 5: 1700000000000, 6: id[:], 7: key[:], 8: key[:]},
			nil,
		},
		{"add token", &AddToken{ID: id, Hash: key, Pattern: "b-*", Uses: 65536, TTLMillis: 3600000}, refMap{1: 115, 2: id[:], 3: key[:], 4: "b-*", 5: 65536, 6: 3600000}, nil},
		{"remove token", &RemoveToken{ID: id}, refMap{1: 116, 2: id[:]}, nil},
		{"list tokens", &ListTokens{}, refMap{1: 117}, nil},
		{"token item minimal", &TokenItem{ID: id, Pattern: "*"}, refMap{1: 118, 2: id[:], 3: "*", 4: 0, 5: 0, 6: 0, 7: make([]byte, 32)}, nil},
		{
			"token item full", &TokenItem{ID: id, Pattern: "b-*", Uses: 20, Used: 3, Expires: 1700000000000, By: key, Expired: true},
			refMap{1: 118, 2: id[:], 3: "b-*", 4: 20, 5: 3, 6: 1700000000000, 7: key[:], 8: true},
			nil,
		},
		{"follow", &Follow{Executor: key}, refMap{1: 119, 2: key[:]}, nil},
		{"retire", &Retire{Executor: key}, refMap{1: 120, 2: key[:]}, nil},
		{"dial", &Dial{Executor: key}, refMap{1: 96, 2: key[:]}, nil},
		{"incoming", &Incoming{Circuit: 256, Client: key}, refMap{1: 97, 2: 256, 3: key[:]}, nil},
		{"dial reply minimal", &DialReply{}, refMap{1: 98}, nil},
		{"dial reply accepted", &DialReply{Circuit: 9}, refMap{1: 98, 5: 9}, nil},
		{"dial reply refused", &DialReply{Code: CodeBusy, Text: "later", RetryMillis: 250}, refMap{1: 98, 2: 6, 3: "later", 4: 250}, nil},
	}
}
