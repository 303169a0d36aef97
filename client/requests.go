package client

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/postern-relay/postern/wire"
)

// requests are what the executor was asked to do with an exec and has not answered. They outlive
// circuits: each one is sent to it again under the same number, which acts once.
type requests struct {
	mu      sync.Mutex
	waiting []*request // in the order of their numbers
	err     error      // the handle takes no more
}

type request struct {
	number  uint64
	message wire.Message
	done    chan error // has room for the answer
}

// maxUnanswered is how many requests an executor lets be outstanding on a circuit.
const maxUnanswered = 256

// enter numbers a request. That happens under the lock, since the executor takes numbers only
// in rising order.
func (q *requests) enter(numbers *atomic.Uint64, message func(number uint64) wire.Message) (*request, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return nil, q.err
	}
	n := numbers.Add(1)
	r := &request{number: n, message: message(n), done: make(chan error, 1)}
	q.waiting = append(q.waiting, r)
	return r, nil
}

// leave forgets a request whose caller waits no more.
func (q *requests) leave(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if i := slices.Index(q.waiting, r); i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
	}
}

// after is the first request above a number, nil if there is none.
func (q *requests) after(number uint64) *request {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, r := range q.waiting {
		if r.number > number {
			return r
		}
	}
	return nil
}

// answer gives a request its answer. One that nobody waits for is of no interest.
func (q *requests) answer(number uint64, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i, r := range q.waiting {
		if r.number == number {
			r.done <- err
			q.waiting = slices.Delete(q.waiting, i, i+1)
			return
		}
	}
}

// end answers every request with err, also those still to come; the first reason counts.
func (q *requests) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return
	}
	q.err = err
	for _, r := range q.waiting {
		r.done <- err
	}
	q.waiting = nil
}
