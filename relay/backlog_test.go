package relay

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
	"testing/synctest"
)

func TestBacklogGivesBytesInOrderAndItsRoomBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &budget{most: 1 << 20}
		b := &backlog{budget: all}
		r := rand.New(rand.NewPCG(5, 6))
		var want []byte
		go func() {
			for range 2000 {
				chunk := make([]byte, 1+r.IntN(copyBuffer))
				for i := range chunk {
					chunk[i] = byte(r.Uint32())
				}
				want = append(want, chunk...)
				if !b.put(chunk) {
					t.Error("a backlog that is open takes nothing")
				}
			}
			b.end(io.EOF)
		}()
		synctest.Wait()
		if b.size > backlogMost || all.used > all.most {
			t.Errorf("%d bytes are held", b.size)
		}
		var got []byte
		for {
			chunk, err := b.take()
			if err == io.EOF {
				break
			}
			got = append(got, chunk...)
		}
		if !bytes.Equal(got, want) || all.used != 0 || b.size != 0 {
			t.Errorf("%d of %d bytes came, %d are still counted", len(got), len(want), all.used)
		}
	})
}

func TestBacklogWithoutBudgetTakesOneChunkAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &budget{most: 10}
		b, other := &backlog{budget: all}, &backlog{budget: all}
		other.put(make([]byte, 10))
		put := 0
		done := make(chan bool)
		go func() {
			for range 3 {
				b.put(make([]byte, 100))
				put++
			}
			done <- b.put(nil)
		}()
		for n := 1; n <= 3; n++ {
			synctest.Wait()
			if put != n {
				t.Fatalf("%d chunks were taken, want %d", put, n)
			}
			if _, err := b.take(); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		b.close()
		other.close()
		if all.used != 0 {
			t.Errorf("%d bytes are still counted", all.used)
		}
		if b.put([]byte("x")) {
			t.Error("a closed backlog takes something")
		}
		b.end(errors.New("reset"))
	})
}
