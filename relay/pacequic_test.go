package relay_test

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"github.com/postern-relay/postern/keys"
	"github.com/postern-relay/postern/relay/relaytest"
	"github.com/postern-relay/postern/wire"
)

// That nobody reads a stream while its chunk is held back must not keep QUIC's reset from being seen.
func TestResetEndsACircuitThatWaitsForItsRateOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	r.Limit(relaytest.Tenant, keys.TenantLimits{Bytes: 500}) // more than a minute for a chunk, after a burst of four
	executor, client := overQUIC(t, r, keys.Executor), overQUIC(t, r, keys.Client)
	c, e := circuit(t, client, executor)
	go func() { _ = writeErr(c) }()
	if _, err := io.ReadFull(e, make([]byte, 100<<10)); err != nil {
		t.Fatal(err)
	}
	for value(t, r, "limited_total", "tenant_bytes") == 0 { // it waits now
		_ = e.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := e.Read(make([]byte, 32<<10)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
	c.Reset(wire.CodeCancelled)
	_ = e.SetReadDeadline(time.Now().Add(20 * time.Second))
	wantCode(t, "executor's read", wire.CodeOf(readErr(e)), wire.CodeCancelled)
}

// What QUIC holds while the rate holds a circuit back arrives whole, and its clean end with it.
func TestPacedCircuitLosesNothingOverQUIC(t *testing.T) {
	r := relaytest.Start(t)
	r.Limit(relaytest.Tenant, keys.TenantLimits{Bytes: 512 << 10})
	executor, client := overQUIC(t, r, keys.Executor), overQUIC(t, r, keys.Client)
	c, e := circuit(t, client, executor)
	const size = 768 << 10
	go func() {
		_, _ = c.Write(make([]byte, size))
		_ = c.CloseWrite()
	}()
	if n, err := io.Copy(io.Discard, e); n != size || err != nil {
		t.Errorf("%d bytes, %v, want %d and a clean end", n, err, size)
	}
	if value(t, r, "limited_total", "tenant_bytes") == 0 {
		t.Error("the rate held nothing back: this shows nothing")
	}
}
