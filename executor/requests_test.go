package executor

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestRequestActsOnceAndIsAnsweredAlikeWhateverItsPlace(t *testing.T) {
	x := newExecution(wire.ExecInfo{}, nil)
	r := rand.New(rand.NewPCG(3, 4))
	instance := wire.ID{1}
	acted := map[uint64]int{}
	answers := map[uint64]error{}
	for n := uint64(1); n < 5000; n++ {
		number := n
		if back := r.Uint64N(100); r.IntN(3) == 0 && back < n { // comes again, or overtaken before
			number = n - back
		}
		got := x.request(instance, number, func() error {
			acted[number]++
			if r.IntN(2) == 0 {
				answers[number] = errors.New("no")
			}
			return answers[number]
		})
		if acted[number] != 1 || !errors.Is(got, answers[number]) {
			t.Fatalf("request %d acted %d times and was answered %v, the first time %v", number, acted[number], got, answers[number])
		}
		if kept := len(x.requests.byInstance[instance].errs); kept > 2*maxReplies {
			t.Fatalf("%d answers are kept", kept)
		}
	}
	if err := x.request(wire.ID{2}, 1, func() error { return nil }); err != nil {
		t.Error(err)
	}
}
