package agent

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// Bounds of what programs can make an agent hold.
const (
	maxConns    = 1024
	requestTime = 5 * time.Second
	lentAtOnce  = 16 // channel numbers: a program opens one for each exec, and a few more
)

// Config says whose agent it is.
type Config struct {
	Key      keys.PublicKey // of the client
	Software string         // of this build; programs of another one are not served
	// Open makes the client of a relay. Its clients are the server's to close.
	Open func(keys.RelayURL) (*client.Client, error)
	Log  *slog.Logger // nil: nothing
}

// Server is an agent. Make it with NewServer and close it.
type Server struct {
	cfg     Config
	ctx     context.Context
	cancel  context.CancelFunc
	retired chan struct{}
	retire  sync.Once
	serving sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	clients map[keys.RelayURL]*client.Client
	conns   int
	used    time.Time // when the last connection ended
}

// NewServer makes an agent that serves nobody yet.
func NewServer(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, retired: make(chan struct{}), clients: make(map[keys.RelayURL]*client.Client), used: time.Now()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Serve serves programs until the listener fails, which closing it brings about. It returns the listener's error.
func (s *Server) Serve(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if !s.enter() {
			conn.Close()
			continue
		}
		go func() {
			defer s.leave()
			s.serve(conn)
		}()
	}
}

// Retired is closed when a program came that this agent must not serve, since it has another key or is of another build: the agent is
// to make place for its successor.
func (s *Server) Retired() <-chan struct{} { return s.retired }

// IdleFor is how long nobody has been served; zero while somebody is.
func (s *Server) IdleFor() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns > 0 {
		return 0
	}
	return time.Since(s.used)
}

// Close ends every circuit and the connections to relays.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	clients := s.clients
	s.clients = nil
	s.mu.Unlock()
	s.cancel()
	s.serving.Wait()
	for _, c := range clients {
		c.Close()
	}
	return nil
}

func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.conns >= maxConns {
		return false
	}
	s.conns++
	s.serving.Add(1)
	return true
}

func (s *Server) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns--
	s.used = time.Now()
	s.serving.Done()
}

// serve answers one connection.
func (s *Server) serve(conn net.Conn) {
	defer conn.Close()
	stop := context.AfterFunc(s.ctx, func() { conn.Close() })
	defer stop()
	if err := checkPeer(conn); err != nil {
		s.cfg.Log.Warn("a program was refused", "err", err)
		return
	}
	_ = conn.SetDeadline(time.Now().Add(requestTime))
	var r request
	if err := readMessage(conn, &r); err != nil {
		return
	}
	_ = conn.SetDeadline(time.Time{})
	if err := s.answer(conn, r); err != nil {
		_ = conn.SetDeadline(time.Now().Add(requestTime))
		_ = writeMessage(conn, answer{Error: err.Error()})
	}
}

var errOther = errors.New("it has another key, or is of another build, and ends")

// answer does what is asked for, or says why not before anything was answered.
func (s *Server) answer(conn net.Conn, r request) error {
	if r.Software != s.cfg.Software || r.Key != s.cfg.Key.String() {
		s.retire.Do(func() { close(s.retired) })
		return errOther
	}
	relay, err := keys.ParseRelayURL(r.Relay)
	if err != nil {
		return err
	}
	executor, err := keys.ParsePublicKey(r.Executor)
	if err != nil {
		return err
	}
	if executor.Kind() != keys.Executor {
		return errors.New("that is no executor's key")
	}
	c, err := s.client(relay)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	switch r.Ask {
	case askBorrow:
		loan, err := c.Executor(executor).Lend(ctx, r.Not, lentAtOnce)
		if err != nil {
			return err
		}
		return writeMessage(conn, answer{Loan: &loan})
	case askCircuit:
		far, err := c.Circuit(ctx, executor)
		if err != nil {
			return err
		}
		if err := writeMessage(conn, answer{}); err != nil {
			far.Reset(wire.CodeCancelled)
			return nil
		}
		join(newStream(conn), far)
		return nil
	}
	return errFrame
}

// client is that of a relay, which connects when it is used.
func (s *Server) client(relay keys.RelayURL) (*client.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	c := s.clients[relay]
	if c == nil {
		var err error
		if c, err = s.cfg.Open(relay); err != nil {
			return nil, err
		}
		s.clients[relay] = c
	}
	return c, nil
}

// Warm makes a session with an executor, so that the next program finds one.
func (s *Server) Warm(ctx context.Context, relay keys.RelayURL, executor keys.PublicKey) error {
	c, err := s.client(relay)
	if err != nil {
		return err
	}
	_, err = c.Executor(executor).Lend(ctx, wire.ID{}, 1)
	return err
}
