package roster

import (
	"testing"
	"testing/synctest"
)

func TestTenantWithManyChangesWaitsForItselfAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var turns turns
		take := func(tenant string, joining bool) func() {
			t.Helper()
			done, err := turns.take(tenant, joining)
			if err != nil {
				t.Fatal(err)
			}
			return done
		}
		first := take("acme", false)
		served := make(chan int)
		for i := range maxAsked - 1 {
			go func() {
				done := take("acme", false)
				served <- i
				done()
			}()
		}
		synctest.Wait() // all of them wait
		if _, err := turns.take("acme", false); err == nil || err.RetryAfter <= 0 {
			t.Errorf("one too many: %v, want busy with a retry-after", err)
		}
		take("other", false)() // does not wait
		go func() {
			done := take("acme", true) // room is left for it
			served <- -1
			done()
		}()
		synctest.Wait()
		select {
		case i := <-served:
			t.Fatalf("%d was served during the turn of another", i)
		default:
		}
		first()
		for range maxAsked {
			<-served
		}
		synctest.Wait()
		if len(turns.of) != 0 {
			t.Errorf("%d tenants are remembered, want none", len(turns.of))
		}
	})
}
