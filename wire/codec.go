package wire

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/fxamacker/cbor/v2"
)

// Message is anything that travels in a record or a frame. Its encoding is a CBOR map
// with small integer keys in which key 1 is the type and comes first, and, for Input
// and Output only, the raw bytes after that map.
type Message interface {
	Type() Type
	// check refuses what the schema cannot: missing fields, values out of range.
	check() error
}

// Type numbers the messages. Zero is no type.
type Type uint8

var encMode = func() cbor.EncMode {
	o := cbor.CoreDetEncOptions()
	o.TagsMd = cbor.TagsForbidden
	o.Time = cbor.TimeUnix
	o.NilContainers = cbor.NilContainerAsEmpty // the decoder takes no null
	m, err := o.EncMode()
	if err != nil {
		panic(err)
	}
	return m
}()

func decMode(arrayElements int) cbor.DecMode {
	// Null would otherwise stand for the zero value of anything.
	simple, err := cbor.NewSimpleValueRegistryFromDefaults(
		cbor.WithRejectedSimpleValue(22), cbor.WithRejectedSimpleValue(23))
	if err != nil {
		panic(err)
	}
	m, err := cbor.DecOptions{
		SimpleValues: simple,
		DupMapKey:    cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden,
		TagsMd: cbor.TagsForbidden, MaxNestedLevels: 8, MaxArrayElements: arrayElements,
		MaxMapPairs: 64, UTF8: cbor.UTF8RejectInvalid, IntDec: cbor.IntDecConvertSignedOrFail,
		BignumTag: cbor.BignumTagForbidden, TimeTag: cbor.DecTagRequired,
		NaN: cbor.NaNDecodeForbidden, Inf: cbor.InfDecodeForbidden,
		BinaryUnmarshaler: cbor.BinaryUnmarshalerNone, FieldNameMatching: cbor.FieldNameMatchingCaseSensitive,
	}.DecMode()
	if err != nil {
		panic(err)
	}
	return m
}

// A Start may have an argv of 131,072 words; nothing else has a long array.
var (
	decCommon = decMode(4096)
	decStart  = decMode(MaxStartElements)
)

// Append appends the encoding of m to dst.
func Append(dst []byte, m Message) ([]byte, error) {
	if err := m.check(); err != nil {
		return dst, fmt.Errorf("%T: %w", m, err)
	}
	switch m := m.(type) {
	case *Output:
		return append(appendOutputHead(dst, m), m.Data...), nil
	case *Input:
		return append(appendInputHead(dst, m), m.Data...), nil
	}
	body, err := encMode.Marshal(m)
	if err != nil {
		return dst, fmt.Errorf("%T: %w", m, err)
	}
	n, rest, err := cutMapHead(body)
	if err != nil {
		return dst, fmt.Errorf("%T: %w", m, err)
	}
	dst = appendHead(dst, majorMap, uint64(n+1))
	dst = appendUint(appendUint(dst, 1), uint64(m.Type()))
	return append(dst, rest...), nil
}

// Encode is Append to nothing.
func Encode(m Message) ([]byte, error) { return Append(nil, m) }

// UnsupportedError is what Decode returns for a type it does not know: the answer is a
// Refused with CodeUnsupported, and the session goes on.
type UnsupportedError struct{ Got Type }

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("message type %d is not supported", uint8(e.Got))
}

// Decode reads one message. The Data of an Input or Output points into b. Any error but
// *UnsupportedError means that the peer broke the protocol.
func Decode(b []byte) (Message, error) {
	t, err := TypeOf(b)
	if err != nil {
		return nil, err
	}
	limit := MaxMessage
	if t == TypeStart {
		limit = MaxStart
	}
	if len(b) > limit {
		return nil, fmt.Errorf("message type %d of %d bytes: at most %d are allowed", t, len(b), limit)
	}
	m := newMessage(t)
	if m == nil {
		return nil, &UnsupportedError{Got: t}
	}
	switch m := m.(type) {
	case *Input:
		m.Data, err = decCommon.UnmarshalFirst(b, m)
	case *Output:
		m.Data, err = decCommon.UnmarshalFirst(b, m)
	case *Start:
		err = decStart.Unmarshal(b, m)
	default:
		err = decCommon.Unmarshal(b, m)
	}
	if err == nil {
		err = m.check()
	}
	if err != nil {
		return nil, fmt.Errorf("message type %d: %w", t, err)
	}
	return m, nil
}

// DecodeAs is Decode that accepts one type only.
func DecodeAs[M Message](b []byte) (M, error) {
	m, err := Decode(b)
	var zero M
	if err != nil {
		return zero, err
	}
	got, ok := m.(M)
	if !ok {
		return zero, fmt.Errorf("got a %T, want a %T", m, zero)
	}
	return got, nil
}

// TypeOf is the type of an encoded message, without decoding the rest.
func TypeOf(b []byte) (Type, error) {
	_, rest, err := cutMapHead(b)
	if err != nil {
		return 0, err
	}
	if len(rest) < 2 || rest[0] != 1 {
		return 0, errors.New("message does not begin with its type")
	}
	switch c := rest[1]; {
	case c > 0 && c < 24:
		return Type(c), nil
	case c == 24 && len(rest) > 2 && rest[2] >= 24:
		return Type(rest[2]), nil
	}
	return 0, errors.New("message type is not a number from 1 to 255 in its shortest form")
}

// Bytes32 is a key or a random number. A plain [32]byte can be assigned to it and it to
// one; what it adds is that no other length is decoded into it.
type Bytes32 [32]byte

// UnmarshalCBOR accepts a byte string of 32 bytes and nothing else.
func (v *Bytes32) UnmarshalCBOR(b []byte) error { return fixedBytes(v[:], b) }

// fixedBytes decodes a byte string of exactly this length. The codec alone would fill a
// short one up with zeros, cut a long one, and take an array of numbers for bytes.
func fixedBytes(dst, b []byte) error {
	want := appendHead(nil, majorBytes, uint64(len(dst)))
	if !bytes.HasPrefix(b, want) || len(b) != len(want)+len(dst) {
		return fmt.Errorf("want a byte string of %d bytes", len(dst))
	}
	copy(dst, b[len(want):])
	return nil
}

const (
	majorBytes = 2
	majorMap   = 5
)

// cutMapHead takes the head of a CBOR map of at most 255 pairs.
func cutMapHead(b []byte) (pairs int, rest []byte, err error) {
	switch {
	case len(b) > 0 && b[0] >= 0xa0 && b[0] < 0xa0+24:
		return int(b[0] - 0xa0), b[1:], nil
	case len(b) > 1 && b[0] == 0xb8:
		return int(b[1]), b[2:], nil
	}
	return 0, nil, errors.New("message is not a CBOR map")
}

// appendHead appends a CBOR head in its shortest form (RFC 8949 section 4.2.1).
func appendHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= 0xff:
		return append(b, major|24, byte(n))
	case n <= 0xffff:
		return append(b, major|25, byte(n>>8), byte(n))
	case n <= 0xffffffff:
		return append(b, major|26, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
	}
	return append(b, major|27, byte(n>>56), byte(n>>48), byte(n>>40), byte(n>>32), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func appendUint(b []byte, n uint64) []byte { return appendHead(b, 0, n) }
