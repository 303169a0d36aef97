package executor_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// callerOf is a client's caller whose line has these options.
func callerOf(t *testing.T, options string) executor.Caller {
	t.Helper()
	key := newKey(t, keys.Client).Public()
	clients, err := keys.ParseAuthorizedClients("clients", strings.NewReader(options+" "+key.String()))
	if err != nil {
		t.Fatal(err)
	}
	line, _ := clients.Lookup(key)
	return executor.Caller{Principal: key.String(), Key: key.String(), Rights: line.Rights}
}

// running is onMachine with an executor that runs, but never reaches its relay. What ahead has is added to the time of day.
func running(t *testing.T, test func(t *testing.T, m *machine, ahead *atomic.Int64)) {
	onMachine(t, func(t *testing.T, m *machine) {
		var ahead atomic.Int64
		var err error
		m.Executor, err = executor.New(executor.Config{
			Key: m.key, Clients: m.admits.Load, Backend: m.backend, Clock: m.clock, Relay: newKey(t, keys.Relay).Public(),
			Now: func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) },
			Dial: func(ctx context.Context) (wire.Transport, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		m.circuits.Go(func() { m.Run(m.ctx) })
		synctest.Wait()
		test(t, m, &ahead)
	})
}

// until is the option of a line that expires after d.
func until(d time.Duration) string { return "expires=" + time.Now().Add(d).UTC().Format(time.RFC3339) }

// wantRevoked reads on c until it is told that the key is out, and says how long that took.
func wantRevoked(t *testing.T, c interface{ Recv() (wire.Message, error) }) time.Duration {
	t.Helper()
	began := time.Now()
	for {
		m, err := c.Recv()
		if wire.CodeOf(err) == wire.CodeRevoked { // a ping of this very moment can make the reset overtake the words
			return time.Since(began)
		}
		if err != nil {
			t.Fatalf("the channel ended with %v, want revoked", err)
		}
		if r, ok := m.(*wire.Refused); ok {
			if r.Code != wire.CodeRevoked {
				t.Fatalf("refused with %v (%s), want revoked", r.Code, r.Text)
			}
			return time.Since(began)
		}
	}
}

func TestExpiredKeyLosesItsSessionsAndCommandsAtThatMoment(t *testing.T) {
	running(t, func(t *testing.T, m *machine, _ *atomic.Int64) {
		g, other := m.newGuest(), m.newGuest()
		m.admitLines(until(3*time.Hour)+" "+g.name(), until(5*time.Hour)+" "+other.name())
		m.Recheck()
		p := command("sleep", "100h")
		c := g.open(g.start(p))
		want[*wire.Started](t, c)
		g.keepTalking(c)
		theirs := other.open(other.start(command("sleep", "4h")))
		want[*wire.Started](t, theirs)
		other.keepTalking(theirs)
		viewer, err := m.backend.As(executor.Caller{Principal: g.name()}).Attach(t.Context(), p.ID, wire.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if took := wantRevoked(t, c); took != 3*time.Hour {
			t.Errorf("it ended after %v, want 3h", took)
		}
		if got := await(t, viewer); got.exit.Cause != wire.CauseRevoked || got.after != 0 {
			t.Errorf("the command ended %+v %v later", got.exit, got.after)
		}
		_, err = g.open(g.start(command("echo"))).Recv()
		wantCode(t, "a channel of the old session", err, wire.CodeNoChannel)
		_, err = m.greet(g.key, m.circuit(g.key.Public().Raw()))
		wantCode(t, "a fresh handshake", err, wire.CodeUnauthorized)
		for {
			if exit, ok := next(t, theirs).(*wire.Exit); ok {
				if !exit.Status.Success() {
					t.Errorf("the other key's command ended %+v", exit.Status)
				}
				break
			}
		}
	})
}

func TestExpiryIsAskedAtEveryOpeningAndStart(t *testing.T) {
	onMachine(t, func(t *testing.T, m *machine) { // nothing runs that would end anything by itself
		g := m.newGuest()
		m.admitLines(until(time.Minute) + " " + g.name())
		p := command("sleep", "10h")
		want[*wire.Started](t, g.open(g.start(p)))
		<-time.After(time.Minute - 1)
		want[*wire.Started](t, g.open(g.start(p)))
		<-time.After(1)
		refusalOf(t, g, g.start(command("echo")), wire.CodeUnauthorized)
		refusalOf(t, g, g.start(p), wire.CodeUnauthorized)
		refusalOf(t, g, g.attach(p.ID, 0, false), wire.CodeUnauthorized)
		refusalOf(t, g, &wire.Control{Deadline: g.deadline(), Verb: wire.VerbList}, wire.CodeUnauthorized)
		if m.runner.Starts() != 1 {
			t.Errorf("%d starts, want 1", m.runner.Starts())
		}
	})
}

func TestExpiryThatComesIntoTheFileLaterIsKept(t *testing.T) {
	running(t, func(t *testing.T, m *machine, _ *atomic.Int64) {
		g := m.newGuest()
		c := g.open(g.start(command("sleep", "100h")))
		want[*wire.Started](t, c)
		<-time.After(10 * time.Second)
		m.admitLines(until(7*time.Second) + " " + g.name())
		m.Recheck()
		if took := wantRevoked(t, c); took != 7*time.Second {
			t.Errorf("it ended after %v, want 7s", took)
		}
	})
}

func TestKeyExpiresAlsoWhenTheClockIsSetForwardOrBack(t *testing.T) {
	running(t, func(t *testing.T, m *machine, ahead *atomic.Int64) {
		g := m.newGuest()
		m.admitLines(until(24*time.Hour) + " " + g.name())
		m.Recheck()
		c := g.open(g.start(command("sleep", "100h")))
		want[*wire.Started](t, c)
		g.keepTalking(c)
		ahead.Store(int64(48 * time.Hour))
		if took := wantRevoked(t, c); took > time.Minute {
			t.Errorf("it ended %v after the clock was set, want a minute at most", took)
		}
		<-time.After(2 * time.Minute)
		ahead.Store(0) // and the line counts again
		g, err := m.greet(g.key, m.circuit(g.key.Public().Raw()))
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * time.Minute)
		d := g.open(g.start(command("sleep", "100h")))
		want[*wire.Started](t, d)
		g.keepTalking(d)
		wantRevoked(t, d)
		if now := time.Since(m.begun); now != 24*time.Hour {
			t.Errorf("it ended after %v, want at 24h", now)
		}
	})
}
