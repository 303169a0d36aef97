package egress

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// TestRequestTable has the requests that the design lists, as far as they reach the proxy.
// Those that go past it fail for want of a route, which is the network namespace's part.
func TestRequestTable(t *testing.T) {
	hello := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello "+r.Host) }
	secure, plain := newTLSServer(t, hello), newServer(t, hello)
	w := newWorld(t, "example.com,allowed.example.com") // the server's certificate is for example.com
	w.routes["127.0.0.1:443"] = secure.Listener.Addr().String()
	w.routes["127.0.0.1:80"] = plain.Listener.Addr().String()
	client := w.client(t, secure)

	for _, tt := range []struct {
		name, url string
		want      string // body, or what the error says
		decision  Decision
	}{
		{"https allowed", "https://example.com/", "hello example.com", Decision{HTTPConnect, "example.com", 443, true, 0, addrPort("127.0.0.1:443")}},
		{"http allowed", "http://example.com/", "hello example.com", Decision{PlainHTTP, "example.com", 80, true, 0, addrPort("127.0.0.1:80")}},
		{"https other name", "https://evil.example/", "blocked by the sandbox policy: evil.example:443 is not in the list of allowed hosts; allowed: allowed.example.com, example.com", Decision{Protocol: HTTPConnect, Host: "evil.example", Port: 443, Reason: NoRule}},
		{"http other name", "http://evil.example/", "blocked by the sandbox policy: evil.example:80 is not", Decision{Protocol: PlainHTTP, Host: "evil.example", Port: 80, Reason: NoRule}},
		{"metadata address", "http://169.254.169.254/latest/meta-data", "blocked by the sandbox policy: only host names", Decision{Protocol: PlainHTTP, Host: "169.254.169.254", Port: 80, Reason: NotAName}},
		{"public address", "https://1.1.1.1/", "blocked by the sandbox policy: only host names", Decision{Protocol: HTTPConnect, Host: "1.1.1.1", Port: 443, Reason: NotAName}},
		{"port 22", "https://example.com:22/", "blocked by the sandbox policy: port 22 of example.com is not", Decision{Protocol: HTTPConnect, Host: "example.com", Port: 22, Reason: PortNotAllowed}},
		{"upper case", "http://EXAMPLE.Com/", "hello example.com", Decision{PlainHTTP, "example.com", 80, true, 0, addrPort("127.0.0.1:80")}},
		{"final dot", "http://example.com./", "hello example.com", Decision{PlainHTTP, "example.com", 80, true, 0, addrPort("127.0.0.1:80")}},
		{"name before an allowed one", "http://allowed.example.com.evil/", "blocked by the sandbox policy", Decision{Protocol: PlainHTTP, Host: "allowed.example.com.evil", Port: 80, Reason: NoRule}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, before := w.last()
			var got string
			if resp, err := client.Get(tt.url); err != nil {
				got = err.Error() // Go's client shows only the status line of a refused CONNECT
			} else {
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if got = string(body); resp.StatusCode != 200 && resp.StatusCode != 403 {
					t.Errorf("status = %d", resp.StatusCode)
				}
			}
			if !strings.Contains(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			w.wantLast(t, tt.decision)
			if _, after := w.last(); after != before+1 {
				t.Errorf("%d decisions, want 1", after-before)
			}
		})
	}
	for _, name := range w.lookups {
		if name != "example.com" {
			t.Errorf("%q was looked up", name)
		}
	}
}

// Everything that looks like an allowed name and is another is refused, in all protocols,
// without being looked up.
func TestNameTricksAreRefused(t *testing.T) {
	w := newWorld(t, "example.com,evil.example:1")
	for _, name := range append(notNames, "example.com.evil", "evilexample.com", "sub.example.com", "allowed@evil.example", "xn--example-.com") {
		for _, request := range []string{
			fmt.Sprintf("CONNECT %s:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n", name),
			fmt.Sprintf("GET http://%s/ HTTP/1.1\r\nHost: example.com\r\n\r\n", name),
			fmt.Sprintf("GET http://%s:80/ HTTP/1.0\r\nHost: example.com\r\n\r\n", name),
			fmt.Sprintf("GET http://%s/ HTTP/1.0\r\nHost: example.com\r\n\r\n", url.PathEscape(name)),
		} {
			resp, _ := w.raw(t, request)
			if resp.StatusCode != 403 && resp.StatusCode != 400 {
				t.Errorf("%q: %s", request, resp.Status)
			}
		}
		if len(name) < 256 {
			if code := socksConnectTo(t, w, name, 443); code != socksNotAllowed {
				t.Errorf("SOCKS %q: %d", name, code)
			}
		}
	}
	if len(w.lookups)+len(w.dials) > 0 {
		t.Errorf("looked up %q, dialled %q", w.lookups, w.dials)
	}
	for _, d := range w.decisions {
		if d.Allowed || strings.ContainsAny(d.Host, "@/ \x00\r\n#%") {
			t.Errorf("decision %+v", d)
		}
	}
}

func TestEmptyRulesRefuseEveryRequest(t *testing.T) {
	w := newWorld(t, "")
	if resp, _ := w.raw(t, "CONNECT example.com:443 HTTP/1.1\r\n\r\n"); resp.StatusCode != 403 {
		t.Errorf("CONNECT: %s", resp.Status)
	}
	resp, body := w.raw(t, "GET http://example.com/ HTTP/1.1\r\nHost: example.com\r\n\r\n")
	if resp.StatusCode != 403 || !strings.HasSuffix(body, "; allowed: none\n") {
		t.Errorf("GET: %s %q", resp.Status, body)
	}
	if code := socksConnectTo(t, w, "example.com", 443); code != socksNotAllowed {
		t.Errorf("SOCKS: %d", code)
	}
}
