package wire

import (
	"bytes"
	"testing"
)

func TestDecodeAcceptsAnIdentifierOfItsOwnLengthOnly(t *testing.T) {
	dial := func(value ...byte) []byte { return append([]byte{0xa2, 1, 0x18, byte(TypeDial), 2}, value...) }
	ones := bytes.Repeat([]byte{1}, 33)
	cases := []struct {
		name  string
		value []byte
	}{
		{"31 bytes", append([]byte{0x58, 31}, ones[:31]...)},
		{"33 bytes", append([]byte{0x58, 33}, ones...)},
		{"length not in its shortest form", append([]byte{0x59, 0, 32}, ones[:32]...)},
		{"array of numbers", append([]byte{0x98, 32}, ones[:32]...)},
		{"text", append([]byte{0x78, 32}, ones[:32]...)},
		{"null", []byte{0xf6}},
		{"undefined", []byte{0xf7}},
	}
	for _, c := range cases {
		if m, err := Decode(dial(c.value...)); err == nil {
			t.Errorf("%s: decoded as %+v, want an error", c.name, m)
		}
	}
	m, err := DecodeAs[*Dial](dial(append([]byte{0x58, 32}, ones[:32]...)...))
	if err != nil || m.Executor != [32]byte(ones) {
		t.Fatalf("32 bytes: %+v, %v", m, err)
	}
}

func TestDecodeTakesNullForNothing(t *testing.T) {
	for name, b := range map[string][]byte{
		"number":      {0xa2, 1, 0x18, byte(TypeHopPing), 2, 0xf6},
		"boolean":     {0xa4, 1, 0x18, byte(TypeInputAck), 2, 1, 3, 1, 4, 0xf6},
		"unknown key": {0xa3, 1, 0x18, byte(TypeHopPing), 2, 1, 0x18, 99, 0xf6},
		"undefined":   {0xa2, 1, 0x18, byte(TypeHopPing), 2, 0xf7},
	} {
		if m, err := Decode(b); err == nil {
			t.Errorf("%s: decoded as %+v, want an error", name, m)
		}
	}
}
