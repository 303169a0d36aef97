package egress

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
)

func TestHostFieldIsTheAuthorisedAuthority(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) { fmt.Fprintf(w, "%s %s", r.Host, r.RequestURI) })
	n := port(s.Listener.Addr().String())
	w := newWorld(t, "a.example,a.example:"+n)
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	for request, want := range map[string]string{
		"GET http://A.example/x?a=1;b=%zz HTTP/1.1\r\nHost: evil.example\r\n\r\n":                          "a.example /x?a=1;b=%zz",
		"GET http://a.example./ HTTP/1.0\r\nHost: evil.example\r\n\r\n":                                    "a.example /",
		"GET http://a.example HTTP/1.0\r\n\r\n":                                                            "a.example /",
		"GET HTTP://a.example:" + n + "/a%2Fb HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n":                   "a.example:" + n + " /a%2Fb",
		"GET http://a.example?q HTTP/1.1\r\nHost: x\r\nConnection: close, X-Secret\r\nX-Secret: 1\r\n\r\n": "a.example /?q",
	} {
		if resp, body := w.raw(t, request); resp.StatusCode != 200 || body != want {
			t.Errorf("%q: %s %q, want %q", request, resp.Status, body, want)
		}
	}
}

func TestHopByHopFieldsEndAtTheProxy(t *testing.T) {
	got := make(chan http.Header, 1)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("Keep-Alive", "1")
		w.Header().Set("X-Kept", "1")
	})
	w := newWorld(t, "a.example")
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	resp, _ := w.raw(t, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: X-Hop\r\nX-Hop: 1\r\nProxy-Connection: keep-alive\r\n"+
		"Proxy-Authorization: Basic c2VjcmV0\r\nKeep-Alive: 1\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\nTE: gzip\r\nX-Kept: 1\r\n\r\n")
	h := <-got
	for _, field := range []string{"X-Hop", "Proxy-Connection", "Proxy-Authorization", "Keep-Alive", "Upgrade", "Te", "Connection", "User-Agent", "Accept-Encoding", "X-Forwarded-For"} {
		if v, ok := h[field]; ok {
			t.Errorf("the server got %s: %q", field, v)
		}
	}
	if h.Get("X-Kept") != "1" || resp.Header.Get("X-Kept") != "1" || resp.Header.Get("Proxy-Authenticate") != "" || resp.Header.Get("Keep-Alive") != "" {
		t.Errorf("request %v, answer %v", h, resp.Header)
	}
}

func TestWhatIsNoProxyRequestIsRefusedClearly(t *testing.T) {
	w := newWorld(t, "a.example")
	for _, request := range []string{
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET //a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET https://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET file:///etc/passwd HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"GET http:a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example: HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nContent-Length: 4\r\n\r\nbody",
		"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		resp, body := w.raw(t, request)
		if resp.StatusCode != 400 || !strings.HasPrefix(body, "sandbox proxy: this is a proxy") || !resp.Close {
			t.Errorf("%q: %s %q", request, resp.Status, body)
		}
	}
	for _, request := range []string{
		"GET http://user:pw@a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT a.example:443/path HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT http://a.example:443/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
		"CONNECT /a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n",
	} {
		if resp, _ := w.raw(t, request); resp.StatusCode != 400 && resp.StatusCode != 403 {
			t.Errorf("%q: %s", request, resp.Status)
		}
	}
	for _, request := range []string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
		"GET http://a.example/ HTTP/3.0\r\nHost: a.example\r\n\r\n",
	} {
		if resp, _ := w.raw(t, request); resp.StatusCode != 505 {
			t.Errorf("%q: %s", request, resp.Status)
		}
	}
	if len(w.lookups) > 0 {
		t.Errorf("looked up %q", w.lookups)
	}
	for _, d := range w.decisions {
		if strings.Contains(d.Host, "pw") || d.Host == "user" {
			t.Errorf("%+v shows a user", d)
		}
	}
}

// Two lengths, or one that is hidden, never let a second request through that the proxy
// has not seen.
func TestNoRequestIsSmuggledInABody(t *testing.T) {
	type seen struct{ uri, body string }
	requests := make(chan seen, 10)
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		requests <- seen{r.RequestURI, string(body)}
	})
	w := newWorld(t, "a.example")
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	for _, head := range []string{
		"Content-Length: 5\r\nContent-Length: 6",
		"Content-Length: 5, 6",
		"Content-Length: +5",
		"Content-Length: 0x5",
		"Transfer-Encoding: chunked, identity",
		"Transfer-Encoding: xchunked",
		"Transfer-Encoding : chunked",
		"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		" Content-Length: 5",
	} {
		resp, _ := w.raw(t, "POST http://a.example/first HTTP/1.1\r\nHost: a.example\r\n"+head+"\r\nConnection: close\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
		if resp.StatusCode != 400 && resp.StatusCode != 501 {
			t.Errorf("%q: %s", head, resp.Status)
		}
	}
	// With both, the length does not count (RFC 9112 section 6.3), and what follows is
	// a request of its own, which is refused.
	w.raw(t, "POST http://a.example/both HTTP/1.1\r\nHost: a.example\r\nContent-Length: 60\r\nTransfer-Encoding: chunked\r\n\r\n"+
		"3\r\nabc\r\n0\r\n\r\nGET http://evil.example/smuggled HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	s.Close()
	close(requests)
	for r := range requests {
		if r != (seen{"/both", "abc"}) {
			t.Errorf("the server got %q", r)
		}
	}
}

func TestPipelinedRequestsAreJudgedOneByOne(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, r.Host+r.RequestURI) }
	served(t, "a.example,b.example", answer, func(t *testing.T, dial func() net.Conn, seen *[]Decision, dials *int) {
		c := dial()
		go func() { // until the refusal, which ends the connection
			for _, u := range []string{"a.example/1", "b.example/2", "a.example/3", "evil.example/4", "a.example/5"} {
				host, _, _ := strings.Cut(u, "/")
				fmt.Fprintf(c, "GET http://%s HTTP/1.1\r\nHost: %s\r\n\r\n", u, host)
			}
		}()
		r := bufio.NewReader(c)
		for _, want := range []string{"a.example/1", "b.example/2", "a.example/3", "blocked"} {
			resp, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if body, _ := io.ReadAll(resp.Body); !strings.HasPrefix(string(body), want) {
				t.Errorf("got %q, want %q", body, want)
			}
		}
		if rest, _ := io.ReadAll(r); len(rest) > 0 { // a refusal ends the connection
			t.Errorf("after the refusal: %q", rest)
		}
		synctest.Wait()
		if *dials != 2 {
			t.Errorf("dialled %d times, want each host once", *dials)
		}
		if len(*seen) != 4 {
			t.Errorf("decisions %+v, want 4", *seen)
		}
	})
}

func TestRedirectsAreTheClientsAffair(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://169.254.169.254/", http.StatusFound)
	})
	w := newWorld(t, "a.example")
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	resp, _ := w.raw(t, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n")
	if resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "http://169.254.169.254/" || len(w.dials) != 1 {
		t.Errorf("%s, %q, dialled %q", resp.Status, resp.Header.Get("Location"), w.dials)
	}
}

func TestBodiesTrailersAndContinuePass(t *testing.T) {
	asked := make(chan struct{})
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/expect" {
			<-asked // the client must hear "continue" only because the body is read
		}
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Trailer", "X-Sum")
		w.WriteHeader(http.StatusEarlyHints)
		w.Write(bytes.ToUpper(body))
		w.(http.Flusher).Flush()
		w.Header().Set("X-Sum", fmt.Sprint(len(body), r.Trailer.Get("X-Sent")))
	})
	w := newWorld(t, "a.example")
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	c := w.connect(t)
	io.WriteString(c, "POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sent\r\n\r\n"+
		"3\r\nabc\r\n3\r\ndef\r\n0\r\nX-Sent: !\r\n\r\n")
	r := bufio.NewReader(c)
	if resp, err := http.ReadResponse(r, nil); err != nil || resp.StatusCode != http.StatusEarlyHints {
		t.Fatalf("%v, %v, want early hints", resp, err)
	}
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	if body, _ := io.ReadAll(resp.Body); string(body) != "ABCDEF" || resp.Trailer.Get("X-Sum") != "6!" {
		t.Errorf("%s %q, trailers %v", resp.Status, body, resp.Trailer)
	}

	c = w.connect(t)
	io.WriteString(c, "PUT http://a.example/expect HTTP/1.1\r\nHost: a.example\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
	close(asked)
	r = bufio.NewReader(c)
	if line, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
		t.Fatalf("%q, %v, want 100", line, err)
	}
	io.WriteString(c, "hi")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "HTTP/1.1 200 OK\r\n" {
			break
		}
	}
}

func TestRefusedUploadIsAnsweredWithoutItsBody(t *testing.T) {
	w := newWorld(t, "a.example")
	c := w.connect(t)
	io.WriteString(c, "PUT http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nExpect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 403 || !resp.Close {
		t.Fatalf("%v, %v", resp, err)
	}
	resp, body := w.raw(t, "HEAD http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if resp.StatusCode != 403 || body != "" {
		t.Errorf("HEAD: %s %q", resp.Status, body)
	}
	if !strings.HasPrefix(resp.Status, "403 blocked by the sandbox policy: evil.example:80 ") || resp.Header.Get("Proxy-Status") != "sandbox; error=http_request_denied" {
		t.Errorf("status line %q, Proxy-Status %q", resp.Status, resp.Header.Get("Proxy-Status"))
	}
}

func TestWebSocketPassesAndOtherUpgradesDoNot(t *testing.T) {
	s := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			io.WriteString(w, "plain")
			return
		}
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(rw, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
		rw.Flush()
		io.Copy(c, rw)
	})
	w := newWorld(t, "a.example")
	w.routes["127.0.0.1:80"] = s.Listener.Addr().String()
	get := "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nConnection: Upgrade\r\n"
	for _, other := range []string{"Upgrade: h2c\r\n", "Upgrade: websocket, h2c\r\n", "Upgrade: websocket\r\nUpgrade: h2c\r\n", "Upgrade: TLS/1.0\r\n"} {
		if resp, body := w.raw(t, get+other+"\r\n"); resp.StatusCode != 200 || body != "plain" {
			t.Errorf("%q: %s %q", other, resp.Status, body)
		}
	}
	c := w.connect(t)
	io.WriteString(c, get+"Upgrade: WebSocket\r\n\r\n")
	r := bufio.NewReader(c)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != 101 {
		t.Fatalf("%v, %v", resp, err)
	}
	for range 3 {
		io.WriteString(c, "frame")
		var b [5]byte
		if _, err := io.ReadFull(r, b[:]); err != nil || string(b[:]) != "frame" {
			t.Fatalf("%q, %v", b, err)
		}
	}
}

func TestUpstreamFailuresAreNotRefusals(t *testing.T) {
	closed := listen(t)
	closed.Close()
	rude := listen(t) // accepts, and says nothing of use
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := rude.Accept()
			if err != nil {
				return
			}
			bufio.NewReader(c).ReadString('\n')
			io.WriteString(c, "220 smtp\r\n")
			c.Close()
		}
	}()
	t.Cleanup(func() { rude.Close(); <-done })
	w := newWorld(t, "refused.example,nowhere.example,rude.example:81")
	w.routes["127.0.0.1:80"], w.routes["127.0.0.1:443"] = closed.Addr().String(), closed.Addr().String()
	w.routes["127.0.0.1:81"] = rude.Addr().String()
	delete(w.names, "nowhere.example")
	for request, want := range map[string]struct {
		line, token string
		reason      Reason
	}{
		"CONNECT refused.example:443 HTTP/1.1\r\n\r\n":                                    {"refused.example:443 refused the connection", "connection_refused", DialFailed},
		"GET http://refused.example/ HTTP/1.1\r\nHost: x\r\n\r\n":                         {"refused.example:80 refused the connection", "connection_refused", DialFailed},
		"CONNECT nowhere.example:443 HTTP/1.1\r\n\r\n":                                    {"nowhere.example:443: the name does not resolve", "dns_error", NotResolved},
		"POST http://nowhere.example/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi": {"nowhere.example:80: the name does not resolve", "dns_error", NotResolved},
		"POST http://rude.example:81/ HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi": {"rude.example:81 closed the connection or", "http_response_incomplete", 0},
	} {
		resp, body := w.raw(t, request)
		if resp.StatusCode != 502 || !strings.HasPrefix(body, "sandbox proxy: "+want.line) || strings.Contains(body, "blocked") ||
			resp.Header.Get("Proxy-Status") != "sandbox; error="+want.token {
			t.Errorf("%q: %s %q %v", request, resp.Status, body, resp.Header)
		}
		if d, _ := w.last(); !d.Allowed || d.Reason != want.reason {
			t.Errorf("%q: %+v", request, d)
		}
	}
}

func TestNothingOfTheContentIsInADecision(t *testing.T) {
	w := newWorld(t, "a.example")
	w.raw(t, "GET http://evil.example/secret?token=secret HTTP/1.1\r\nHost: secret\r\nCookie: secret\r\n\r\n")
	w.raw(t, "GET http://secret:secret@a.example/ HTTP/1.1\r\nHost: x\r\n\r\n")
	w.raw(t, "CONNECT secret:secret@a.example:443 HTTP/1.1\r\n\r\n")
	if len(w.decisions) != 3 {
		t.Errorf("%d decisions", len(w.decisions))
	}
	for _, d := range w.decisions {
		if strings.Contains(fmt.Sprintf("%+v %s", d, d.Destination()), "secret") {
			t.Errorf("%+v", d)
		}
	}
}

func TestHugeHeaderIsRefused(t *testing.T) {
	w := newWorld(t, "a.example")
	c := w.connect(t)
	go io.WriteString(c, "GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nX: "+strings.Repeat("x", 2*maxHeader)+"\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != 431 {
		t.Errorf("%v, %v", resp, err)
	}
}

func TestKeptConnectionsServeManyRequests(t *testing.T) {
	answer := func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "ok") }
	served(t, "a.example", answer, func(t *testing.T, dial func() net.Conn, seen *[]Decision, dials *int) {
		transport := &http.Transport{
			Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy.example:1"}),
			DialContext: func(context.Context, string, string) (net.Conn, error) { return dial(), nil },
		}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}
		for range 20 {
			resp, err := client.Get((&url.URL{Scheme: "http", Host: "a.example"}).String())
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			synctest.Wait()
		}
		if len(*seen) != 20 || *dials != 1 {
			t.Fatalf("%d decisions and %d connections, want 20 and 1", len(*seen), *dials)
		}
		if want := (Decision{PlainHTTP, "a.example", 80, true, 0, addrPort("127.0.0.1:80")}); (*seen)[19] != want {
			t.Errorf("decision %+v, want %+v", (*seen)[19], want)
		}
	})
}
