package executor_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postern-relay/postern/executor"
	"github.com/postern-relay/postern/executor/executortest"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
	"github.com/postern-relay/postern/wire/noiseconn"
	"github.com/postern-relay/postern/wire/wiretest"
)

// machine is an executor without a relay, on simulated time: tests open its circuits themselves.
type machine struct {
	*executor.Executor
	t       *testing.T
	runner  *executortest.Runner
	backend *executor.Local
	key     *keys.PrivateKey
	begun   time.Time
	admits  atomic.Pointer[keys.AuthorizedClients]
	// signalled, if not nil, is called when a signal was sent and before that is known.
	signalled func()

	circuits sync.WaitGroup
	ctx      context.Context
}

// hooked is the machine's runner with its hook.
type hooked struct{ m *machine }

func (h hooked) Run(ctx context.Context, s executor.Spec) (executor.Running, error) {
	run, err := h.m.runner.Run(ctx, s)
	if err != nil {
		return nil, err
	}
	return hookedRunning{run, h.m}, nil
}

type hookedRunning struct {
	executor.Running
	m *machine
}

func (h hookedRunning) Signal(s wire.Signal) error {
	err := h.Running.Signal(s)
	if h.m.signalled != nil {
		h.m.signalled()
	}
	return err
}

// onMachine runs a test with a machine in a bubble.
func onMachine(t *testing.T, test func(t *testing.T, m *machine)) {
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, runner: new(executortest.Runner), key: newKey(t, keys.Executor), begun: time.Now()}
		var err error
		if m.backend, err = executor.NewLocal(executor.LocalConfig{Runner: hooked{m}}); err != nil {
			t.Fatal(err)
		}
		m.Executor, err = executor.New(executor.Config{Key: m.key, Clients: m.admits.Load, Backend: m.backend, Clock: m.clock})
		if err != nil {
			t.Fatal(err)
		}
		var cancel context.CancelFunc
		m.ctx, cancel = context.WithCancel(context.Background())
		defer func() {
			cancel()
			m.circuits.Wait()
			m.backend.Close()
		}()
		test(t, m)
	})
}

func newKey(t *testing.T, kind keys.Kind) *keys.PrivateKey {
	t.Helper()
	k, err := keys.Generate(kind)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func (m *machine) clock() time.Duration { return time.Since(m.begun) }

// admit makes these the only clients that may run commands.
func (m *machine) admit(clients ...*keys.PrivateKey) {
	m.t.Helper()
	var lines []string
	for _, c := range clients {
		lines = append(lines, c.Public().String())
	}
	m.admitLines(lines...)
}

// admitLines makes these the lines of authorized_clients.
func (m *machine) admitLines(lines ...string) {
	m.t.Helper()
	list, err := keys.ParseAuthorizedClients("clients", strings.NewReader(strings.Join(lines, "\n")))
	if err != nil {
		m.t.Fatal(err)
	}
	m.admits.Store(list)
}

// circuit begins one, as the relay would with this hint.
func (m *machine) circuit(hint [32]byte) wire.Stream {
	ours, theirs := wiretest.Pipe()
	m.circuits.Go(func() { m.ServeCircuit(m.ctx, theirs, hint) })
	return ours
}

// guest is a client that says what a test wants it to say.
type guest struct {
	m        *machine
	key      *keys.PrivateKey
	first    *noiseconn.Conn // channel 0
	session  *noiseconn.Session
	instance wire.ID
	attempt  uint64
	epoch    wire.ID
}

// newGuest is an admitted client with a session.
func (m *machine) newGuest() *guest {
	m.t.Helper()
	key := newKey(m.t, keys.Client)
	m.admit(key)
	g, err := m.greet(key, m.circuit(key.Public().Raw()))
	if err != nil {
		m.t.Fatal(err)
	}
	return g
}

// greet makes a session with a key of the caller's.
func (m *machine) greet(key *keys.PrivateKey, s wire.Stream) (*guest, error) {
	i, err := noiseconn.Dial(m.t.Context(), s, noiseconn.InitiatorConfig{
		Static: key, Peer: m.key.Public().Raw(), Prologue: noiseconn.EndToEndPrologue(), Clock: m.clock,
	})
	if err != nil {
		return nil, err
	}
	hello := &wire.Hello{Versions: wire.Versions}
	rand.Read(hello.Random[:])
	g := &guest{m: m, key: key, instance: wire.ID(wire.NewExecID()), epoch: i.Epoch()}
	if g.first, err = i.Finish(hello); err != nil {
		return nil, err
	}
	answer, err := g.first.Recv()
	if err != nil {
		return nil, err
	}
	switch answer := answer.(type) {
	case *wire.Welcome:
		g.session, err = noiseconn.NewSession(g.first, hello, answer)
		return g, err
	case *wire.Refused:
		return nil, answer.Err()
	}
	return nil, errors.New("neither admitted nor refused")
}

// open sends the first message of a new channel.
func (g *guest) open(first wire.Message) *noiseconn.Conn {
	g.m.t.Helper()
	return g.openOn(g.m.circuit(g.key.Public().Raw()), first)
}

func (g *guest) openOn(s wire.Stream, first wire.Message) *noiseconn.Conn {
	g.m.t.Helper()
	c, err := g.session.OpenChannel(s)
	if err != nil {
		g.m.t.Fatal(err)
	}
	if err := c.Send(first); err != nil {
		g.m.t.Fatal(err)
	}
	return c
}

func (g *guest) deadline() uint64 {
	return uint64((g.session.Clock() + wire.OpeningDeadline) / time.Millisecond)
}

func (g *guest) start(p wire.ExecParams) *wire.Start {
	p, err := p.Normalize()
	if err != nil {
		g.m.t.Fatal(err)
	}
	g.attempt++
	s := wire.NewStart(p)
	s.Deadline, s.Instance, s.Attempt, s.Epoch = g.deadline(), g.instance, g.attempt, g.epoch
	return s
}

func (g *guest) attach(id wire.ExecID, after uint64, control bool) *wire.Attach {
	g.attempt++
	return &wire.Attach{Deadline: g.deadline(), ID: id, Instance: g.instance, Attempt: g.attempt, After: after, Control: control}
}

// next is the next message that is not a Ping or credit for input.
func next(t *testing.T, c *noiseconn.Conn) wire.Message {
	t.Helper()
	for {
		m, err := c.Recv()
		if err != nil {
			t.Fatalf("nothing more comes: %v", err)
		}
		switch m.(type) {
		case *wire.Ping, *wire.InputAck:
		default:
			return m
		}
	}
}

// want is the next message, which must be an M.
func want[M wire.Message](t *testing.T, c *noiseconn.Conn) M {
	t.Helper()
	m := next(t, c)
	got, ok := m.(M)
	if !ok {
		var zero M
		t.Fatalf("got %T %+v, want a %T", m, m, zero)
	}
	return got
}

// wantRefusal ends with FIN after it.
func wantRefusal(t *testing.T, c *noiseconn.Conn, code wire.Code) {
	t.Helper()
	if r := want[*wire.Refused](t, c); r.Code != code {
		t.Errorf("refused with %v (%s), want %v", r.Code, r.Text, code)
	}
	if m, err := c.Recv(); err != io.EOF {
		t.Errorf("after the refusal: %+v, %v, want the end", m, err)
	}
}

// keepTalking sends pings as a client does, until the channel ends.
func (g *guest) keepTalking(c *noiseconn.Conn) {
	go func() {
		for {
			select {
			case <-time.After(wire.PingInterval):
			case <-g.m.ctx.Done():
				return
			}
			if c.Send(&wire.Ping{Clock: uint64(g.session.Clock() / time.Millisecond)}) != nil {
				return
			}
		}
	}()
}

// taped keeps what was written.
type taped struct {
	wire.Stream
	mu   sync.Mutex
	tape bytes.Buffer
}

func (s *taped) Write(p []byte) (int, error) {
	s.mu.Lock()
	s.tape.Write(p)
	s.mu.Unlock()
	return s.Stream.Write(p)
}

func (s *taped) bytes() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return bytes.Clone(s.tape.Bytes())
}
