package wire

// An encoder of its own for the vectors: RFC 8949 core deterministic encoding of the
// values that postern's messages consist of. It shares nothing with the codec.

import (
	"encoding/hex"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// refMap is a map with integer keys. Values are uint64, int64, bool, string (text),
// []byte, refArray and refMap.
type refMap map[uint64]any

type refArray []any

// refHead writes a major type and an argument in the shortest form.
func refHead(major byte, n uint64) string {
	var argument int // bytes of it
	first := byte(n)
	switch {
	case n < 24:
	case n < 1<<8:
		first, argument = 24, 1
	case n < 1<<16:
		first, argument = 25, 2
	case n < 1<<32:
		first, argument = 26, 4
	default:
		first, argument = 27, 8
	}
	out := []byte{major<<5 | first}
	for i := argument - 1; i >= 0; i-- {
		out = append(out, byte(n>>(8*i)))
	}
	return string(out)
}

func refEncode(v any) string {
	switch v := v.(type) {
	case uint64:
		return refHead(0, v)
	case int64:
		if v < 0 {
			return refHead(1, uint64(-1-v))
		}
		return refHead(0, uint64(v))
	case int:
		return refEncode(int64(v))
	case bool:
		if v {
			return "\xf5"
		}
		return "\xf4"
	case []byte:
		return refHead(2, uint64(len(v))) + string(v)
	case string:
		return refHead(3, uint64(len(v))) + v
	case refArray:
		parts := []string{refHead(4, uint64(len(v)))}
		for _, e := range v {
			parts = append(parts, refEncode(e))
		}
		return strings.Join(parts, "")
	case refMap:
		var pairs []string
		for k, e := range v {
			pairs = append(pairs, refHead(0, k)+refEncode(e))
		}
		sort.Strings(pairs) // bytewise by key: keys are prefix-free
		return refHead(5, uint64(len(v))) + strings.Join(pairs, "")
	}
	panic(fmt.Sprintf("no encoding for a %T", v))
}

// refDiagnostic is v in the notation of RFC 8949 section 8, for people.
func refDiagnostic(v any) string {
	switch v := v.(type) {
	case []byte:
		if len(v) > 40 {
			return fmt.Sprintf("h'%s...' (%d bytes)", hex.EncodeToString(v[:8]), len(v))
		}
		return "h'" + hex.EncodeToString(v) + "'"
	case string:
		return fmt.Sprintf("%q", v)
	case refArray:
		var parts []string
		for _, e := range v {
			parts = append(parts, refDiagnostic(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case refMap:
		var keys []uint64
		for k := range v {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		var parts []string
		for _, k := range keys {
			parts = append(parts, fmt.Sprintf("%d: %s", k, refDiagnostic(v[k])))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(v)
}
