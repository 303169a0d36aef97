package executor

import (
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// reaching is an executor whose commands may reach a server of the test under names that only the proxy resolves.
type reaching struct {
	*Local
	workspace string
	port      string // of the server
}

// newReaching has example.com and www.example.com lead to the test's server on the loopback, which is permitted.
func newReaching(t *testing.T) reaching {
	t.Helper()
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("needs curl")
	}
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "hello %s", r.Host) }))
	t.Cleanup(server.Close)
	r := reaching{workspace: t.TempDir()}
	_, r.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(filepath.Join(r.workspace, "ca.pem"), ca, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	runner := NewSandboxRunner(l, netip.MustParsePrefix("127.0.0.0/8")).(*sandboxRunner)
	runner.proxies.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		switch host {
		case "example.com", "www.example.com":
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		case "inside.example.com":
			return []netip.Addr{netip.MustParseAddr("10.1.2.3")}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	r.Local, err = NewLocal(LocalConfig{
		Runner: runner, Workspaces: []string{r.workspace}, Environ: os.Environ(), Network: Network{Mode: wire.NetworkAllowList, Any: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// run runs a script and returns what it printed and how it ended.
func (r reaching) run(t *testing.T, n wire.Network, script string) (string, wire.ExitStatus) {
	t.Helper()
	p, err := r.Start(t.Context(), wire.ExecParams{Argv: []string{"/bin/sh", "-c", script}, Env: []string{"LC_ALL=C", "PORT=" + r.port}, Merge: true, Network: n})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var printed strings.Builder
	var status wire.ExitStatus
	for e, err := range p.Events(t.Context(), 0) {
		switch {
		case err == io.EOF:
		case err != nil:
			t.Fatal(err)
		case e.Chunk != nil:
			printed.Write(e.Chunk.Data)
		case e.Exit != nil:
			status = *e.Exit
		}
	}
	return printed.String(), status
}

// The table of what comes of a request from inside; curl as people use it, and real TLS to the end.
func TestRequestsFromInsideAnAllowList(t *testing.T) {
	r := newReaching(t)
	n := wire.Network{Mode: wire.NetworkAllowList, Allow: []string{"example.com:" + r.port, "inside.example.com"}}
	const curl = "curl -sS -m 20 --cacert ca.pem "
	for _, c := range []struct {
		name, script string
		want         string // in what is printed
		denied       string // what is said of it; empty: nothing
	}{
		{"https to an allowed name", curl + "https://example.com:$PORT/", "hello example.com:", ""},
		{"https to another name", curl + "https://www.example.com:$PORT/", "403", "connect to www.example.com:PORT denied: not in the allow-list"},
		{"http to another name", curl + "http://www.example.com/; false", "blocked by the sandbox policy", "connect to www.example.com:80 denied"},
		{"an allowed name without the proxy", curl + "--noproxy '*' https://example.com:$PORT/", "Could not resolve host", "connect to the network denied"},
		{"an address without the proxy", curl + "--noproxy '*' https://192.0.2.1/", "curl: (7)", "connect to the network denied"},
		{"the metadata address", curl + "-f http://169.254.169.254/latest/", "403", "connect to 169.254.169.254:80 denied: only names"},
		{"an allowed name at another port", curl + "https://example.com:22/", "403", "connect to example.com:22 denied"},
		{"upper case", curl + "https://EXAMPLE.com:$PORT/", "hello", ""},
		{"a final dot", curl + "https://example.com.:$PORT/", "hello", ""},
		{"a longer name", curl + "https://example.com.evil.example:$PORT/", "403", "connect to example.com.evil.example:PORT denied"},
		{"another host behind an at sign", curl + "https://example.com:$PORT@evil.example/", "403", "connect to evil.example:443 denied"},
		{"a name of a private address", curl + "https://inside.example.com/", "403", "connect to inside.example.com:443 denied: it leads to an address of a private network"},
		{"a name that is not there", curl + "https://example.com:$PORT/ https://gone.example/", "403", "connect to gone.example:443 denied"},
		{"a server of its own", `python3 -m http.server --bind 127.0.0.1 8099 >/dev/null 2>&1 & until curl -sS -o /dev/null http://127.0.0.1:8099/ 2>/dev/null; do :; done; echo served`, "served", ""},
		{"a name server", `python3 -c "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.53', 53))"`, "unreachable", "connect to the network denied"},
		{"the machine's loopback", "curl -sS -k --noproxy '*' https://127.0.0.1:$PORT/", "curl: (7)", ""},
		{"a virtual machine's socket", `python3 -c "import socket; socket.socket(40, 1)"`, "not supported", "socket denied: only unix, IPv4 and IPv6 sockets"},
		{"a raw socket", `python3 -c "import socket; socket.socket(2, 3, 1)"`, "not permitted", "socket denied"},
		{"SOCKS5 to an allowed name", curl + "--socks5-hostname 127.0.0.1:3128 https://example.com:$PORT/", "hello", ""},
		{"SOCKS5 to another name", curl + "--socks5-hostname 127.0.0.1:3128 https://www.example.com:$PORT/", "curl: (", "connect to www.example.com:PORT denied"},
	} {
		printed, status := r.run(t, n, c.script)
		if !strings.Contains(printed, c.want) {
			t.Errorf("%s: printed %q, want %q", c.name, printed, c.want)
		}
		var said []string
		for _, d := range status.Denials {
			said = append(said, strings.ReplaceAll(d.String(), ":"+r.port, ":PORT"))
		}
		switch {
		case c.denied == "" && len(said) > 0:
			t.Errorf("%s: said %q, want nothing", c.name, said)
		case c.denied != "" && (len(said) == 0 || !strings.HasPrefix(said[0], c.denied)):
			t.Errorf("%s: said %q, want %q first; printed %q, %+v", c.name, said, c.denied, printed, status)
		}
	}
}

func TestEmptyAllowListReachesNobody(t *testing.T) {
	r := newReaching(t)
	printed, status := r.run(t, wire.Network{Mode: wire.NetworkAllowList}, "curl -sS --cacert ca.pem https://example.com:$PORT/")
	if status.Success() || !strings.Contains(printed, "403") {
		t.Errorf("printed %q, %v", printed, status)
	}
}

// What was allowed to one command stays allowed to it, and to nobody else.
func TestAllowListsOfTwoCommandsAreApart(t *testing.T) {
	r := newReaching(t)
	one := wire.Network{Mode: wire.NetworkAllowList, Allow: []string{"example.com:" + r.port}}
	two := wire.Network{Mode: wire.NetworkAllowList, Allow: []string{"www.example.com:" + r.port}}
	for _, session := range []string{"", "same"} {
		one.Session, two.Session = session, session
		for range 2 {
			for n, host := range map[*wire.Network]string{&one: "example.com", &two: "www.example.com"} {
				if printed, status := r.run(t, *n, "curl -sS --cacert ca.pem https://"+host+":$PORT/"); !status.Success() {
					t.Errorf("session %q: %s is allowed: %q", session, host, printed)
				}
			}
			if printed, status := r.run(t, one, "curl -sS --cacert ca.pem https://www.example.com:$PORT/"); status.Success() || !strings.Contains(printed, "403") {
				t.Errorf("session %q: the list of another command counts: %q", session, printed)
			}
		}
	}
}

// Two principals that name the same session do not meet there.
func TestSessionsOfTwoPrincipalsAreApart(t *testing.T) {
	r := newReaching(t)
	n := wire.Network{Mode: wire.NetworkNone, Session: "s"}
	const serve = "exec python3 -u -m http.server --bind 127.0.0.1 8098"
	p, err := r.Start(t.Context(), wire.ExecParams{Argv: []string{"/bin/sh", "-c", serve}, Network: n, Merge: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for e, err := range p.Events(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Chunk != nil { // it says that it serves
			break
		}
	}
	const fetch = "curl -sS -o /dev/null http://127.0.0.1:8098/"
	if printed, status := r.run(t, n, fetch); !status.Success() {
		t.Errorf("the same principal: %q", printed)
	}
	other := reaching{r.As(Caller{Principal: "other"}), r.workspace, r.port}
	if printed, status := other.run(t, n, fetch); status.Success() {
		t.Errorf("another principal reaches it: %q", printed)
	}
}
