//go:build linux

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"
)

// takeResume kills a relay under an open exec, starts it again, and counts what it takes until the exec goes on.
func takeResume(ctx context.Context, b *bench) error {
	b.say("%s", resume)
	delay := b.o.delay
	if delay <= 0 {
		delay = targetDelay // round trips are counted by the time they take
	}
	s, err := newPostern(ctx, b.program, filepath.Join(b.dir, "resume"), delay)
	if err != nil {
		return err
	}
	defer s.close()
	l, err := opened(ctx, s.box, "cat")
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := l.roundTrips(1, 64); err != nil {
		return err
	}
	return b.take(ctx, &measure{
		name: resume, path: fmt.Sprintf("%v added to each leg", delay), rounds: b.rounds(0.5),
		about:      "the relay is killed and started again under an open `cat`. \"round trips\": from the first datagram of the client's new connection until 64 bytes that it sent have come back, divided by a round trip from client to executor (twice that of a leg); the client's leg is shut until the executor is back. \"executor is back\": from the relay's start to the executor's registration, waits between tries included. \"exec goes on\": from the relay's start to the 64 bytes, all waits included. An ssh connection does not come back, its command is lost",
		quantities: []quantity{{name: "round trips"}, {name: "executor is back", unit: "s"}, {name: "exec goes on", unit: "s"}},
		contenders: []contender{{name: posternLibrary, sample: func(ctx context.Context) ([]float64, error) {
			return s.restart(ctx, l, delay)
		}}},
	})
}

// restart is one turn of takeResume.
func (s *posternSite) restart(ctx context.Context, l *line, delay time.Duration) ([]float64, error) {
	s.near.block(true)
	s.relay.kill()
	if err := s.relay.start(ctx); err != nil {
		return nil, err
	}
	begun := time.Now()
	if err := await(ctx, "the executor comes back", 2*time.Minute, func() bool { return online(ctx, s.relay.watched) == 1 }); err != nil {
		return nil, err
	}
	executor := time.Since(begun)
	s.near.block(false)
	if _, err := l.roundTrips(1, 64); err != nil {
		return nil, err
	}
	back := time.Now()
	took := back.Sub(s.near.latest())
	return []float64{took.Seconds() / (2 * delay).Seconds(), executor.Seconds(), back.Sub(begun).Seconds()}, nil
}
