package quicconn

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/quic-go/quic-go"

	"github.com/postern-relay/postern/wire"
)

var (
	errDown = errors.New("down")
	nowhere = &net.UDPAddr{}
)

// waits runs Redial over a script of connections and returns how long it waited before
// each attempt but the first.
func waits(t *testing.T, random float64, script []func() (time.Time, error)) []time.Duration {
	t.Helper()
	var got []time.Duration
	last := time.Now()
	err := Redial(t.Context(), Backoff{Random: func() float64 { return random }},
		func(context.Context) (time.Time, error) {
			got = append(got, time.Since(last))
			if len(got) > len(script) {
				return time.Time{}, Stop(errDown)
			}
			established, err := script[len(got)-1]()
			last = time.Now()
			return established, err
		})
	if !errors.Is(err, errDown) {
		t.Fatalf("Redial: %v, want the error that was marked", err)
	}
	return got[1:]
}

func never() (time.Time, error) { return time.Time{}, errDown }

func upFor(d time.Duration) func() (time.Time, error) {
	return func() (time.Time, error) {
		at := time.Now()
		time.Sleep(d) // fake time
		return at, wire.ErrLost
	}
}

func crowded() (time.Time, error) {
	return time.Time{}, dialError(nowhere, &quic.TransportError{ErrorCode: quic.ConnectionRefused, Remote: true})
}

func retryAfter(d time.Duration) func() (time.Time, error) {
	return func() (time.Time, error) {
		return time.Time{}, &wire.Error{Code: wire.CodeDuplicate, RetryAfter: d}
	}
}

func TestRedialWaits(t *testing.T) {
	const s = time.Second
	cases := []struct {
		name   string
		random float64
		script []func() (time.Time, error)
		want   []time.Duration
	}{
		{
			"doubles to its cap", 0.5,
			[]func() (time.Time, error){never, never, never, never, never, never, never, never},
			[]time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, 30 * s},
		},
		{"spreads over the whole length", 0, []func() (time.Time, error){never, never}, []time.Duration{0, 0}},
		{
			"forgets failures after a minute up", 0.5,
			[]func() (time.Time, error){never, never, never, upFor(60 * s), never},
			[]time.Duration{s / 2, s, 2 * s, s / 2, s},
		},
		{
			"remembers failures after less", 0.5,
			[]func() (time.Time, error){never, never, never, upFor(59 * s), never},
			[]time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s},
		},
		{
			"does not wait long for a relay that is there", 0.5,
			[]func() (time.Time, error){never, never, never, never, never, never, crowded, crowded, crowded, never},
			[]time.Duration{s / 2, s, 2 * s, 4 * s, 8 * s, 16 * s, 5 * s, 5 * s, 5 * s, 10 * s},
		},
		{
			"waits at least as long as it was told", 0.5,
			[]func() (time.Time, error){retryAfter(60 * s)},
			[]time.Duration{60*s + s/2},
		},
		{
			"is not put off for more than an hour", 0.5,
			[]func() (time.Time, error){retryAfter(10000 * time.Hour)},
			[]time.Duration{time.Hour + s/2},
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if got := waits(t, c.random, c.script); !cmp.Equal(got, c.want) {
					t.Errorf("waits %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestRedialEndsWithItsContextAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		start := time.Now()
		var told error
		b := Backoff{Base: time.Hour, Cap: time.Hour, Random: func() float64 { return 0.9 }, Waiting: func(cause error, _ time.Duration) {
			told = cause
			time.AfterFunc(time.Minute, func() { cancel(gone) })
		}}
		err := Redial(ctx, b, func(context.Context) (time.Time, error) { return time.Time{}, errDown })
		if err != gone || time.Since(start) != time.Minute || told != errDown {
			t.Errorf("Redial: %v after %v (told %v), want %v after 1m", err, time.Since(start), told, gone)
		}
	})
}
