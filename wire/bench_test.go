package wire

import "testing"

// BenchmarkCodec measures messages as they are sent most: small ones through the codec, and
// a full Output whose head is written by hand. On two shared Xeon cores under other load:
//
//	go test -run '^$' -bench . -benchtime 0.3s ./wire
//
//	              Append              Decode
//	Ack            351 ns  1 alloc    1.4 us   3 allocs
//	InputAck       459 ns  1 alloc    1.3 us   3 allocs
//	Start          3.1 us  5 allocs   5.9 us  14 allocs
//	Output32KiB    1.3 us  0 allocs   1.6 us   3 allocs
func BenchmarkCodec(b *testing.B) {
	for _, c := range []struct {
		name string
		m    Message
	}{
		{"Ack", &Ack{Seq: 123456}},
		{"InputAck", &InputAck{Offset: 1 << 20, Limit: 2 << 20}},
		{"Start", NewStart(ExecParams{ID: ExecID{1}, Argv: []string{"git", "status", "--porcelain"}, Env: []string{"LANG=C"}})},
		{"Output32KiB", &Output{Seq: 123456, Stream: Stdout, Data: make([]byte, MaxChunk)}},
	} {
		if s, ok := c.m.(*Start); ok {
			s.Instance, s.Attempt = ID{1}, 1
		}
		encoded, err := Encode(c.m)
		if err != nil {
			b.Fatal(err)
		}
		b.Run("Append/"+c.name, func(b *testing.B) {
			buf := make([]byte, 0, 64<<10)
			b.ReportAllocs()
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if _, err := Append(buf, c.m); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("Decode/"+c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(encoded)))
			for b.Loop() {
				if _, err := Decode(encoded); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
