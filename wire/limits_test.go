package wire

import (
	"math/rand/v2"
	"reflect"
	"testing"
)

// A zero limit is none, so it is wider than any other.
func wider(a, b uint64) bool { return b != 0 && (a == 0 || a > b) }

func TestMeetIsNeverWiderThanEither(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() (l Limits) {
		for i, v := 0, reflect.ValueOf(&l).Elem(); i < v.NumField(); i++ {
			v.Field(i).SetUint(r.Uint64N(4)) // small numbers, so that zero and equal ones are common
		}
		return l
	}
	for range 10000 {
		a, b := random(), random()
		m := a.Meet(b)
		if m != b.Meet(a) || m.Meet(a) != m || a.Meet(Limits{}) != a {
			t.Fatalf("%+v and %+v meet in %+v", a, b, m)
		}
		for i := range reflect.TypeFor[Limits]().NumField() {
			x, y, z := reflect.ValueOf(a).Field(i).Uint(), reflect.ValueOf(b).Field(i).Uint(), reflect.ValueOf(m).Field(i).Uint()
			if wider(z, x) || wider(z, y) || z != x && z != y {
				t.Fatalf("%+v and %+v meet in %+v: field %d", a, b, m, i)
			}
		}
	}
}

func TestLimitSetNamesItsLimits(t *testing.T) {
	if got := (LimitMemory | LimitOutput).String(); got != "memory, output" {
		t.Errorf("got %q", got)
	}
	if got := LimitSet(0).String(); got != "" {
		t.Errorf("got %q for none", got)
	}
	if limitSetEnd != 1<<len(limitNames) {
		t.Errorf("%d names for limits below %d", len(limitNames), limitSetEnd)
	}
}
