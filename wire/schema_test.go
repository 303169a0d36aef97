package wire

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// schema is what the tests need of postern.cddl: the maps with their integer keys.
type schema struct {
	rules    map[string]map[int]schemaKey
	reserved map[string][]int // by rule; "type" for types without a message
	codes    map[string]int
}

type schemaKey struct {
	value    string
	optional bool
}

var (
	ruleLine     = regexp.MustCompile(`^([a-z0-9-]+) = \{$`)
	keyLine      = regexp.MustCompile(`^  (\? )?(\d+): (.+)$`)
	reservedLine = regexp.MustCompile(`^; reserved:? (type|[a-z-]+):? (.+)$`)
	reservedKey  = regexp.MustCompile(`(\d+) \(`)
	codeLine     = regexp.MustCompile(`^  ([a-z_]+): (\d+),?$`)
)

func number(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func readSchema(t *testing.T) schema {
	t.Helper()
	text, err := os.ReadFile("postern.cddl")
	if err != nil {
		t.Fatal(err)
	}
	s := schema{map[string]map[int]schemaKey{}, map[string][]int{}, map[string]int{}}
	var rule map[int]schemaKey
	inCodes := false
	for i, line := range strings.Split(string(text), "\n") {
		if m := reservedLine.FindStringSubmatch(line); m != nil {
			for _, k := range reservedKey.FindAllStringSubmatch(m[2], -1) {
				s.reserved[m[1]] = append(s.reserved[m[1]], number(t, k[1]))
			}
			continue
		}
		if m := ruleLine.FindStringSubmatch(line); m != nil {
			if s.rules[m[1]] != nil {
				t.Errorf("line %d: rule %s twice", i+1, m[1])
			}
			rule = map[int]schemaKey{}
			s.rules[m[1]] = rule
			continue
		}
		switch line {
		case "}":
			rule = nil
		case "codes = &(":
			inCodes = true
		case ")":
			inCodes = false
		}
		if m := keyLine.FindStringSubmatch(line); m != nil && rule != nil {
			n := number(t, m[2])
			if _, twice := rule[n]; twice {
				t.Errorf("line %d: key %d twice", i+1, n)
			}
			value, _, _ := strings.Cut(m[3], ";")
			rule[n] = schemaKey{strings.TrimRight(value, " ,"), m[1] != ""}
		} else if m := codeLine.FindStringSubmatch(line); m != nil && inCodes {
			s.codes[m[1]] = number(t, m[2])
		}
	}
	return s
}

// ruleName is HopHello as hop-hello.
func ruleName(goName string) string {
	var b strings.Builder
	for i, r := range goName {
		if i > 0 && unicode.IsUpper(r) {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// structKeys are the integer keys of a struct's fields.
func structKeys(t *testing.T, typ reflect.Type) map[int]reflect.StructField {
	t.Helper()
	keys := map[int]reflect.StructField{}
	for f := range typ.Fields() {
		tag := f.Tag.Get("cbor")
		if tag == "-" {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		if !strings.Contains(","+options+",", ",keyasint,") {
			t.Errorf("%v.%s has no integer key", typ, f.Name)
			continue
		}
		n := number(t, name)
		if other, twice := keys[n]; twice {
			t.Errorf("%v: key %d is of %s and of %s", typ, n, other.Name, f.Name)
		}
		keys[n] = f
	}
	return keys
}

func checkStruct(t *testing.T, s schema, typ reflect.Type, message bool) {
	t.Helper()
	name := ruleName(typ.Name())
	rule := s.rules[name]
	if rule == nil {
		t.Errorf("no rule %s for %v", name, typ)
		return
	}
	keys := structKeys(t, typ)
	if f, clash := keys[1]; clash && message {
		t.Errorf("%v.%s has key 1, which is the type", typ, f.Name)
	}
	for n, f := range keys {
		k, ok := rule[n]
		if !ok {
			t.Errorf("%s has no key %d (%v.%s)", name, n, typ, f.Name)
			continue
		}
		if omitted := strings.Contains(f.Tag.Get("cbor"), "omitempty"); omitted != k.optional {
			t.Errorf("%s key %d: optional %t, but %v.%s is left out when empty: %t", name, n, k.optional, typ, f.Name, omitted)
		}
	}
	for n := range rule {
		if _, ok := keys[n]; !ok && !(message && n == 1) {
			t.Errorf("%s has key %d, which %v has not", name, n, typ)
		}
	}
	for _, n := range s.reserved[name] {
		if _, used := keys[n]; used {
			t.Errorf("%s: key %d is reserved, but in use", name, n)
		}
	}
}

func TestSchemaAndStructsHaveTheSameKeys(t *testing.T) {
	s := readSchema(t)
	seen := map[string]bool{}
	for n := range 256 {
		m := newMessage(Type(n))
		if m == nil {
			continue
		}
		typ := reflect.TypeOf(m).Elem()
		name := ruleName(typ.Name())
		checkStruct(t, s, typ, true)
		seen[name] = true
		if got := s.rules[name][1].value; got != strconv.Itoa(n) {
			t.Errorf("%s: type %s in the schema, %d in the code", name, got, n)
		}
		for _, r := range s.reserved["type"] {
			if r == n {
				t.Errorf("type %d is reserved, but in use", n)
			}
		}
	}
	for _, v := range []any{ExitStatus{}, ListItem{}, SessionLimits{}, HopLimits{}, Limits{}, JoinProof{}, Network{}, Denial{}} {
		checkStruct(t, s, reflect.TypeOf(v), false)
		seen[ruleName(reflect.TypeOf(v).Name())] = true
	}
	for name := range s.rules {
		if !seen[name] {
			t.Errorf("rule %s belongs to no struct", name)
		}
	}
	for name := range s.reserved {
		if name != "type" && s.rules[name] == nil {
			t.Errorf("keys of %s are reserved, but there is no such rule", name)
		}
	}
}

// constants are the names and numbers that a file declares as Type or Code.
func constants(t *testing.T, file, kind string) map[string]int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	line := regexp.MustCompile(`(?m)^\s+(` + kind + `\w+)\s+` + kind + `\s+= (\d+)`)
	for _, m := range line.FindAllStringSubmatch(string(text), -1) {
		for other, n := range out {
			if n == number(t, m[2]) {
				t.Errorf("%s and %s are both %d", other, m[1], n)
			}
		}
		out[m[1]] = number(t, m[2])
	}
	if len(out) < 20 {
		t.Fatalf("found %d constants in %s", len(out), file)
	}
	return out
}

func TestEveryTypeIsDocumented(t *testing.T) {
	s := readSchema(t)
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	reserved := map[int]bool{}
	for _, n := range s.reserved["type"] {
		reserved[n] = true
	}
	for name, n := range constants(t, "types.go", "Type") {
		short := strings.TrimPrefix(name, "Type")
		if row := fmt.Sprintf("| %d | %s |", n, short); !strings.Contains(string(text), row) {
			t.Errorf("PROTOCOL.md has no row %q", row)
		}
		if defined := newMessage(Type(n)) != nil; defined == reserved[n] {
			t.Errorf("type %d (%s): has a message %t, reserved in the schema %t", n, short, defined, reserved[n])
		}
	}
}

func TestEveryCodeIsDocumented(t *testing.T) {
	s := readSchema(t)
	text, err := os.ReadFile("PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	codes := constants(t, "code.go", "Code")
	if len(codes) != len(s.codes) {
		t.Errorf("%d codes in the code, %d in the schema", len(codes), len(s.codes))
	}
	for name, n := range codes {
		c := Code(n)
		if !c.Known() {
			t.Errorf("%s has no stable name", name)
		}
		if s.codes[c.String()] != n {
			t.Errorf("%v is %d, in the schema %d", c, n, s.codes[c.String()])
		}
		if row := fmt.Sprintf("| %d | `%s` |", n, c); !strings.Contains(string(text), row) {
			t.Errorf("PROTOCOL.md has no row %q", row)
		}
	}
}
