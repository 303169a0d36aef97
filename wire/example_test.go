package wire_test

import (
	"fmt"

	"github.com/postern-relay/postern/wire"
)

// A message is encoded for a record, and decoded on the other side.
func Example() {
	sent := wire.NewStart(wire.ExecParams{ID: wire.ExecID{1}, Argv: []string{"printf", "%s", "\xff"}, Sandbox: wire.SandboxReadOnly})
	sent.Instance, sent.Attempt = wire.ID{2}, 1
	b, err := wire.Encode(sent)
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := wire.Decode(b)
	if err != nil {
		fmt.Println(err)
		return
	}
	switch m := m.(type) {
	case *wire.Start:
		p := m.Params()
		fmt.Printf("%q in mode %v\n", p.Argv, p.Sandbox)
	}
	// Output: ["printf" "%s" "\xff"] in mode read-only
}

// Append puts messages into a buffer that is used again. The data of an Output is not
// copied by the codec on either side.
func ExampleAppend() {
	buf := make([]byte, 0, 64)
	for seq, text := range []string{"one", "two"} {
		var err error
		buf, err = wire.Append(buf[:0], &wire.Output{Seq: uint64(seq + 1), Stream: wire.Stdout, Data: []byte(text)})
		if err != nil {
			fmt.Println(err)
			return
		}
		o, err := wire.DecodeAs[*wire.Output](buf)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%d %v %s\n", o.Seq, o.Stream, o.Data)
	}
	// Output:
	// 1 stdout one
	// 2 stdout two
}

func ExampleExitStatus_ShellCode() {
	for _, s := range []wire.ExitStatus{
		{Code: 3, Cause: wire.CauseExited},
		{Signal: "KILL", Cause: wire.CauseOOM},
		{Signal: "TERM", Cause: wire.CauseTimedOut},
	} {
		fmt.Println(s, "->", s.ShellCode())
	}
	// Output:
	// exit status 3 -> 3
	// ended by signal KILL (out of memory) -> 137
	// ended by signal TERM (timed out) -> 124
}
