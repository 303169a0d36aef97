package noiseconn

import (
	"testing"

	"github.com/postern-relay/postern/wire"
)

func TestLoanedNumbersAreNobodyElses(t *testing.T) {
	s := &Session{last: 100}
	if n, err := s.take(); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	l, err := s.Lend(10)
	if err != nil || l.First != 2 || l.Last != 11 {
		t.Fatalf("%+v, %v", l, err)
	}
	b, err := Borrow(l, nil)
	if err != nil {
		t.Fatal(err)
	}
	if left := b.Left(); left != 10 {
		t.Errorf("%d numbers of a loan are left, want 10", left)
	}
	for want := uint64(2); want <= 11; want++ {
		if n, err := b.take(); n != want || err != nil {
			t.Errorf("borrowed %d, %v, want %d", n, err, want)
		}
	}
	if n, err := b.take(); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Errorf("a number beyond the loan: %d, %v", n, err)
	}
	if n, err := s.take(); n != 12 || err != nil {
		t.Errorf("the lender goes on with %d, %v, want 12", n, err)
	}
	if _, err := s.Lend(89); wire.CodeOf(err) != wire.CodeNoChannel {
		t.Errorf("more than there are: %v", err)
	}
	if _, err := s.Lend(0); err == nil {
		t.Error("a loan of nothing is made")
	}
	if l, err := s.Lend(88); err != nil || l.Last != 100 || s.Left() != 0 {
		t.Errorf("the last ones: %+v, %v, %d left", l, err, s.Left())
	}
}

func TestLoanWithoutNumbersIsRefused(t *testing.T) {
	for _, l := range []Loan{{}, {First: 0, Last: 5}, {First: 6, Last: 5}, {First: 1, Last: wire.SessionChannels + 1}} {
		if _, err := Borrow(l, nil); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
}
