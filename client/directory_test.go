package client

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/wire"
)

// answering writes frames and ends the answer.
func answering(frames ...wire.Message) func(wire.Stream, wire.Message) {
	return func(s wire.Stream, _ wire.Message) {
		for _, m := range frames {
			if wire.WriteFrame(s, m) != nil {
				return
			}
		}
		s.CloseWrite()
	}
}

var aToken = wire.AddToken{ID: wire.ID{1}, Hash: wire.Bytes32{2}, Pattern: "ci-*", Uses: 3, TTLMillis: 4}

// asked are the four requests, by what they return.
var asked = map[string]func(context.Context, *Client) (int, error){
	"list of executors": func(ctx context.Context, c *Client) (int, error) {
		l, err := c.Executors(ctx)
		return len(l), err
	},
	"list of tokens": func(ctx context.Context, c *Client) (int, error) {
		l, err := c.Tokens(ctx)
		return len(l), err
	},
	"new token": func(ctx context.Context, c *Client) (int, error) { return 0, c.AddToken(ctx, aToken) },
	"token taken back": func(ctx context.Context, c *Client) (int, error) {
		return 0, c.RemoveToken(ctx, wire.ID{1})
	},
}

func isList(name string) bool { return strings.HasPrefix(name, "list") }

// itemOf is an item that belongs into the answer, where there are any.
func itemOf(name string) wire.Message {
	if name == "list of tokens" {
		return &wire.TokenItem{ID: wire.ID{1}, Pattern: "*", Uses: 1}
	}
	return &wire.ExecutorItem{Executor: wire.Bytes32{1}, Name: "a"}
}

// eachRequest runs a test with each of the four.
func eachRequest(t *testing.T, test func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error))) {
	for name, ask := range asked {
		t.Run(name, func(t *testing.T) {
			withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
				test(t, name, r, func(ctx context.Context) (int, error) { return ask(ctx, c) })
			})
		})
	}
}

func executorKey(t *testing.T, raw wire.Bytes32) keys.PublicKey {
	t.Helper()
	k, err := keys.NewPublicKey(keys.Executor, raw)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestExecutorsAreListedAsTheRelayTellsThem(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		id, mac, follows := wire.ID{7}, wire.Bytes32{8}, wire.Bytes32{9}
		var got wire.Message
		answer := answering(
			&wire.ExecutorItem{Executor: wire.Bytes32{1}, Name: "full", Online: true, Seen: 1_700_000_000_123, Token: &id, MAC: &mac, Follows: &follows},
			&wire.ExecutorItem{Executor: wire.Bytes32{2}, Name: "\x1b[2J"},
			&wire.Reply{},
		)
		r.request = func(s wire.Stream, m wire.Message) {
			got = m
			answer(s, m)
		}
		list, err := c.Executors(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []ExecutorEntry{
			{Key: executorKey(t, wire.Bytes32{1}), Name: "full", Online: true, Seen: time.UnixMilli(1_700_000_000_123), Token: id, MAC: mac, Follows: executorKey(t, follows)},
			{Key: executorKey(t, wire.Bytes32{2}), Name: "\x1b[2J"},
		}
		if d := cmp.Diff(want, list, cmp.AllowUnexported(keys.PublicKey{})); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		if _, ok := got.(*wire.ListExecutors); !ok {
			t.Errorf("the relay was asked by a %T", got)
		}
	})
}

func TestTokensAreAddedListedAndTakenBack(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		var got []wire.Message
		items := []wire.TokenItem{{ID: wire.ID{1}, Pattern: "ci-*", Uses: 3, Used: 1, Expires: 5, By: wire.Bytes32{6}}, {ID: wire.ID{2}, Expired: true}}
		r.request = func(s wire.Stream, m wire.Message) {
			got = append(got, m)
			if _, ok := m.(*wire.ListTokens); ok {
				answering(&items[0], &items[1], &wire.Reply{})(s, m)
				return
			}
			answering(&wire.Reply{})(s, m)
		}
		if err := c.AddToken(t.Context(), aToken); err != nil {
			t.Error(err)
		}
		list, err := c.Tokens(t.Context())
		if d := cmp.Diff(items, list); d != "" || err != nil {
			t.Errorf("%v, -want +got:\n%s", err, d)
		}
		if err := c.RemoveToken(t.Context(), wire.ID{2}); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]wire.Message{&aToken, &wire.ListTokens{}, &wire.RemoveToken{ID: wire.ID{2}}}, got); d != "" {
			t.Errorf("the relay was asked, -want +got:\n%s", d)
		}
	})
}

func TestEmptyListIsNoError(t *testing.T) {
	eachRequest(t, func(t *testing.T, _ string, r *relayDouble, ask func(context.Context) (int, error)) {
		r.request = answering(&wire.Reply{})
		if n, err := ask(t.Context()); n != 0 || err != nil {
			t.Errorf("%d items, %v", n, err)
		}
	})
}

func TestRequestThatMakesNoSenseIsNotSent(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		if err := c.AddToken(t.Context(), wire.AddToken{}); err == nil {
			t.Error("a token without anything was added")
		}
		if err := c.RemoveToken(t.Context(), wire.ID{}); err == nil {
			t.Error("no token was taken back")
		}
		if n := r.dialled(); n != 0 {
			t.Errorf("%d connections for requests that nobody can make", n)
		}
	})
}

func TestRefusalOfARequestIsTheRelaysWordAndNoList(t *testing.T) {
	eachRequest(t, func(t *testing.T, name string, r *relayDouble, ask func(context.Context) (int, error)) {
		refusal := &wire.Reply{Code: wire.CodeBusy, Text: "later", RetryMillis: 3000}
		frames := []wire.Message{refusal}
		if isList(name) {
			frames = []wire.Message{itemOf(name), refusal} // what came before it is no list
		}
		r.request = answering(frames...)
		n, err := ask(t.Context())
		e, ok := errors.AsType[*wire.Error](err)
		if !ok || e.Code != wire.CodeBusy || e.Text != "later" || e.RetryAfter != 3*time.Second || n != 0 {
			t.Errorf("%d items, %v, want the relay's words", n, err)
		}
		if n := r.dialled(); n != 1 {
			t.Errorf("%d connections, want 1: a refusal is no loss", n)
		}
	})
}

func TestRelayThatIsTooOldIsSaidInOneLine(t *testing.T) {
	for how, answer := range map[string]func(r *relayDouble, s wire.Stream){
		"as to a dial": func(_ *relayDouble, s wire.Stream) {
			answering(wire.DialRefusal(wire.Errorf(wire.CodeUnsupported, "message of type 113")))(s, nil)
		},
		"a reset, unsupported": func(_ *relayDouble, s wire.Stream) { s.Reset(wire.CodeUnsupported) },
		"a reset, protocol":    func(_ *relayDouble, s wire.Stream) { s.Reset(wire.CodeProtocol) },
		"the end of the connection": func(r *relayDouble, _ wire.Stream) {
			r.mu.Lock()
			current := r.current
			r.mu.Unlock()
			current.Close(wire.CodeProtocol, "no dial")
		},
	} {
		t.Run(how, func(t *testing.T) {
			eachRequest(t, func(t *testing.T, _ string, r *relayDouble, ask func(context.Context) (int, error)) {
				r.request = func(s wire.Stream, _ wire.Message) { answer(r, s) }
				n, err := ask(t.Context())
				wantCode(t, "ask", err, wire.CodeUnsupported)
				if err != nil && (!strings.HasPrefix(err.Error(), "this relay is too old for ") || strings.ContainsAny(err.Error(), "\n") || n != 0) {
					t.Errorf("%d items, %v", n, err)
				}
				if errors.Is(err, wire.ErrLost) {
					t.Error("it looks like a loss")
				}
				if n := r.dialled(); n != 1 {
					t.Errorf("%d connections, want 1", n)
				}
			})
		})
	}
	for how, answer := range map[string]func(s wire.Stream){
		"another reset":     func(s wire.Stream) { s.Reset(wire.CodeBusy) },
		"refused as a dial": func(s wire.Stream) { answering(wire.DialRefusal(&wire.Error{Code: wire.CodeBusy}))(s, nil) },
	} {
		t.Run(how, func(t *testing.T) {
			eachRequest(t, func(t *testing.T, _ string, r *relayDouble, ask func(context.Context) (int, error)) {
				r.request = func(s wire.Stream, _ wire.Message) { answer(s) }
				_, err := ask(t.Context())
				wantCode(t, "ask", err, wire.CodeBusy)
				if err != nil && strings.Contains(err.Error(), "too old") {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestRequestsDoNotHoldUpCircuits(t *testing.T) {
	withRelay(t, func(t *testing.T, r *relayDouble, c *Client) {
		r.request = func(wire.Stream, wire.Message) {} // never answered
		r.circuit = func(s wire.Stream, _ *wire.Dial) {
			answering(wire.DialRefusal(&wire.Error{Code: wire.CodeUnreachable, Text: "offline"}))(s, nil)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { _, err := c.Executors(ctx); ended <- err }()
		synctest.Wait()
		_, err := c.Executor(newKey(t, keys.Executor).Public()).List(t.Context())
		wantCode(t, "list of execs", err, wire.CodeUnreachable)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Executors: %v, want the context's end", err)
		}
	})
}
