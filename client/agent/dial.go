package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// answerTime bounds how long an agent may take for an answer when the caller's context allows more: it may have to connect to the relay first.
const answerTime = 15 * time.Second

// Agent is a program's way to its user's agent, for one relay. It holds no connection. It is safe for concurrent use.
type Agent struct {
	path, software string
	key            keys.PublicKey
	relay          keys.RelayURL
}

var _ client.Agent = (*Agent)(nil)

// New is the agent behind a socket, which need not be there: then its methods fail. Software says which build this is.
func New(path, software string, key keys.PublicKey, relay keys.RelayURL) *Agent {
	return &Agent{path: path, software: software, key: key, relay: relay}
}

// OpenCircuit implements client.Agent. The caller ends the stream with Reset.
func (a *Agent) OpenCircuit(ctx context.Context, executor keys.PublicKey) (wire.Stream, error) {
	conn, _, err := a.ask(ctx, request{Ask: askCircuit, Executor: executor.String()})
	if err != nil {
		return nil, err
	}
	return newStream(conn), nil
}

// Borrow implements client.Agent.
func (a *Agent) Borrow(ctx context.Context, executor keys.PublicKey, not wire.ID) (client.Loan, error) {
	conn, got, err := a.ask(ctx, request{Ask: askBorrow, Executor: executor.String(), Not: not})
	if err != nil {
		return client.Loan{}, err
	}
	conn.Close()
	if got.Loan == nil {
		return client.Loan{}, errFrame
	}
	return *got.Loan, nil
}

// ask makes a request on a connection of its own, which is the caller's if there is no error.
func (a *Agent) ask(ctx context.Context, r request) (net.Conn, *answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", a.path)
	if err != nil {
		return nil, nil, fmt.Errorf("no agent: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	got, err := a.exchange(conn, r)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	return conn, got, nil
}

func (a *Agent) exchange(conn net.Conn, r request) (*answer, error) {
	if err := checkPeer(conn); err != nil {
		return nil, err
	}
	r.Software, r.Key, r.Relay = a.software, a.key.String(), a.relay.String()
	if err := writeMessage(conn, r); err != nil {
		return nil, err
	}
	got := new(answer)
	if err := readMessage(conn, got); err != nil {
		return nil, err
	}
	if got.Error != "" {
		return nil, errors.New("the agent: " + got.Error)
	}
	return got, nil
}
