package quicconn

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"time"

	"github.com/postern-relay/postern/wire"
)

// Both ends are postern, so there is one version, one group and one application protocol:
// nothing to negotiate, nothing to downgrade. The group is hybrid, so that recorded
// traffic stays closed to a later quantum computer.
func commonTLS() *tls.Config {
	return &tls.Config{
		MinVersion:       tls.VersionTLS13,
		CurvePreferences: []tls.CurveID{tls.X25519MLKEM768},
		NextProtos:       []string{wire.ALPN},
		// A resumed connection would need its own thoughts about the binding, and 0-RTT is
		// ruled out anyway.
		SessionTicketsDisabled: true,
	}
}

// listenTLS has a certificate of its own for each start, kept in memory: nobody checks
// it, so there is no file to protect and no expiry to miss.
func listenTLS() (*tls.Config, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("throw-away TLS key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(10, 0, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("throw-away TLS certificate: %w", err)
	}
	c := commonTLS()
	c.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}}
	return c, nil
}

// dialTLS does not check the relay's certificate. The relay proves its pinned Noise key
// on the first stream, over a prologue that holds this very connection's exporter value:
// whoever terminates TLS in between has another value and cannot make the two ends agree.
// TestMiddleIsRejectedByTheBinding in package relay fails when the binding goes.
func dialTLS() *tls.Config {
	c := commonTLS()
	c.InsecureSkipVerify = true
	return c
}
