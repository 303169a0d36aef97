package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// failure is why a host cannot be reached.
type failure struct {
	reason Reason
	addr   netip.AddrPort // the refused one
	cause  error          // for NotResolved and DialFailed
}

func (f *failure) Error() string {
	if f.cause == nil {
		return f.reason.String()
	}
	return fmt.Sprintf("%v: %v", f.reason, f.cause)
}

func (f *failure) Unwrap() error { return f.cause }

// timeout tells whether somebody did not answer in time.
func (f *failure) timeout() bool {
	var e net.Error
	return errors.As(f.cause, &e) && e.Timeout()
}

// check says why a request is refused before anything is looked up, or zero.
func (p *Proxy) check(c *clientConn, host string, port uint16) Reason {
	if c.turnedAway {
		return TooMany
	}
	return p.rules.verdict(host, port)
}

// reach connects to a host that check has passed. The error is a *failure.
func (p *Proxy) reach(ctx context.Context, host string, port uint16) (net.Conn, netip.AddrPort, error) {
	addrs, err := p.resolve(ctx, host)
	if err != nil {
		return nil, netip.AddrPort{}, &failure{reason: NotResolved, cause: err}
	}
	for _, addr := range addrs {
		if !reachable(addr, p.permit, p.own) {
			return nil, netip.AddrPort{}, &failure{reason: PrivateAddress, addr: netip.AddrPortFrom(addr, port)}
		}
	}
	conn, addr, err := p.dialAny(ctx, addrs, port)
	if err != nil {
		return nil, netip.AddrPort{}, &failure{reason: DialFailed, cause: err}
	}
	return conn, addr, nil
}

// systemLookup asks the machine. A final dot keeps the search list away, so that a name that
// does not exist cannot become another one; names of one label get none, because
// with it they would not be found in /etc/hosts.
func systemLookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if strings.Contains(host, ".") {
		host += "."
	}
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}

func (p *Proxy) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := p.lookup(ctx, host)
	if err != nil {
		if ctx.Err() == context.DeadlineExceeded {
			return nil, os.ErrDeadlineExceeded // a Lookup may say it in its own way
		}
		return nil, err
	}
	if len(found) == 0 {
		return nil, &net.DNSError{Err: "no addresses", Name: host, IsNotFound: true}
	}
	var addrs []netip.Addr
	for _, addr := range found {
		if addr = addr.Unmap(); !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs, nil
}

// dialed is how one attempt ended.
type dialed struct {
	conn net.Conn
	addr netip.AddrPort
	err  error
}

// dialAny connects to the first of the addresses that answers. They are tried in an order
// in which the two families take turns; the next one begins when the one before has
// failed, or attemptDelay later (RFC 8305). The error is that of the first address.
func (p *Proxy) dialAny(ctx context.Context, addrs []netip.Addr, port uint16) (net.Conn, netip.AddrPort, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel() // ends the attempts that lost
	addrs = alternate(addrs)
	addrs = addrs[:min(len(addrs), maxAttempts)]
	results := make(chan dialed)
	running, next := 0, 0
	var firstErr error
	delay := time.NewTimer(0)
	defer delay.Stop()
	start := func() {
		if next == len(addrs) {
			return
		}
		addr := netip.AddrPortFrom(addrs[next], port)
		next++
		running++
		delay.Reset(attemptDelay)
		go func() {
			conn, err := p.dial(ctx, "tcp", addr.String())
			results <- dialed{conn, addr, err}
		}()
	}
	for running > 0 || next < len(addrs) {
		select {
		case <-delay.C:
			start()
		case r := <-results:
			running--
			if r.err == nil {
				cancel()
				for range running { // none is left behind, and none stays open
					if late := <-results; late.err == nil {
						late.conn.Close()
					}
				}
				return r.conn, r.addr, nil
			}
			if firstErr == nil {
				firstErr = r.err
			}
			start()
		}
	}
	return nil, netip.AddrPort{}, firstErr
}

// alternate keeps the order of addresses within each family and lets the families take
// turns, so that one that does not work costs one attempt only.
func alternate(addrs []netip.Addr) []netip.Addr {
	var turns [2][]netip.Addr
	for _, addr := range addrs {
		i := 0
		if addr.Is4() != addrs[0].Is4() {
			i = 1
		}
		turns[i] = append(turns[i], addr)
	}
	var mixed []netip.Addr
	for i := range addrs {
		for _, family := range turns {
			if i < len(family) {
				mixed = append(mixed, family[i])
			}
		}
	}
	return mixed
}
