package egress

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// toolbox runs real programs with the environment that Environ gives, and no other proxy
// settings, against https://example.com and http://example.com, which are local servers.
type toolbox struct {
	*world
	ca  string // file with the certificate of the https server
	env []string
}

func newToolbox(t *testing.T, h http.HandlerFunc) *toolbox {
	t.Helper()
	secure, plain := newTLSServer(t, h), newServer(t, h)
	w := newWorld(t, "example.com")
	w.routes["127.0.0.1:443"] = secure.Listener.Addr().String()
	w.routes["127.0.0.1:80"] = plain.Listener.Addr().String()
	home := t.TempDir()
	ca := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &toolbox{w, ca, append([]string{
		"HOME=" + home, "PATH=" + os.Getenv("PATH"), "LC_ALL=C", "SSL_CERT_FILE=" + ca,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_SSL_CAINFO=" + ca,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}, Environ(addrPort(w.addr))...)}
}

// need skips the test where the tool does not run.
func (b *toolbox) need(t *testing.T, tool string) {
	t.Helper()
	if out, err := b.run(t, tool, "--version"); err != nil {
		t.Skipf("%s is not installed or does not start: %v %.100s", tool, err, out)
	}
}

func (b *toolbox) run(t *testing.T, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = b.env, filepath.Dir(b.ca), 10*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (b *toolbox) works(t *testing.T, want string, argv ...string) {
	t.Helper()
	if out, err := b.run(t, argv...); err != nil || !strings.Contains(out, want) {
		t.Errorf("%q: %v\n%s\nwant %q", argv, err, out, want)
	}
}

func (b *toolbox) fails(t *testing.T, want string, argv ...string) {
	t.Helper()
	if out, err := b.run(t, argv...); err == nil || !strings.Contains(out, want) {
		t.Errorf("%q: %v\n%s\nwant a failure with %q", argv, err, out, want)
	}
	if d, _ := b.last(); d.Allowed {
		t.Errorf("%q: %+v", argv, d)
	}
}

func hello(w http.ResponseWriter, r *http.Request) { io.WriteString(w, "hello from "+r.Host) }

func TestCurlThroughTheProxy(t *testing.T) {
	b := newToolbox(t, hello)
	b.need(t, "curl")
	curl := []string{"curl", "-sS", "--fail-with-body", "--max-time", "30", "--cacert", b.ca}
	arg := func(more ...string) []string { return append(curl[:len(curl):len(curl)], more...) }
	b.works(t, "hello from example.com", arg("https://example.com/")...)
	b.works(t, "hello from example.com", arg("http://EXAMPLE.com./")...)
	b.works(t, "hello from example.com", arg("--noproxy", "", "--proxy", "socks5h://"+b.addr, "https://example.com/")...)
	b.works(t, "hello from example.com", arg("--socks5-hostname", b.addr, "http://example.com/")...)
	b.fails(t, "blocked by the sandbox policy: evil.example:80", arg("http://evil.example/")...)
	b.fails(t, "HTTP/1.1 403 blocked by the sandbox policy: evil.example:443 is not in the list of allowed hosts; allowed: example.com", arg("-v", "https://evil.example/")...)
	b.fails(t, "(2)", arg("--socks5-hostname", b.addr, "https://evil.example/")...)
	b.fails(t, "only host names", arg("-v", "https://1.1.1.1/")...)
	b.fails(t, "port 22 of example.com", arg("-v", "https://example.com:22/")...)
	b.fails(t, "only host names", arg("http://169.254.169.254/latest/meta-data")...)

	_, before := b.last()
	inside := newServer(t, hello)
	b.works(t, "hello from 127.0.0.1", arg(inside.URL)...) // loopback goes past the proxy
	if _, after := b.last(); after != before {
		t.Error("loopback went through the proxy")
	}
}

func TestWgetThroughTheProxy(t *testing.T) {
	b := newToolbox(t, hello)
	b.need(t, "wget")
	wget := func(url string) []string {
		return []string{"wget", "-nv", "-O", "-", "--tries=1", "--timeout=30", "--ca-certificate=" + b.ca, url}
	}
	b.works(t, "hello from example.com", wget("https://example.com/")...)
	b.works(t, "hello from example.com", wget("http://example.com/")...)
	b.fails(t, "blocked by the sandbox policy", wget("https://evil.example/")...)
	b.fails(t, "blocked by the sandbox policy", wget("http://evil.example/")...)
}

func TestPythonThroughTheProxy(t *testing.T) {
	b := newToolbox(t, hello)
	b.need(t, "python3")
	if out, err := b.run(t, "python3", "-c", "import ssl, urllib.request"); err != nil {
		t.Skipf("python3 has no ssl module: %s", out)
	}
	python := func(url string) []string {
		return []string{"python3", "-c", "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=30).read())", url}
	}
	b.works(t, "hello from example.com", python("https://example.com/")...)
	b.works(t, "hello from example.com", python("http://example.com/")...)
	b.fails(t, "blocked by the sandbox policy: evil.example:443", python("https://evil.example/")...)
	b.fails(t, "blocked by the sandbox policy: evil.example:80", python("http://evil.example/")...)
}

func TestGitThroughTheProxy(t *testing.T) {
	projects := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "git", "--exec-path").Output()
	if err != nil {
		t.Skipf("git is not installed or does not start: %v", err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skipf("git has no http-backend here: %v", err)
	}
	b := newToolbox(t, func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength < 0 { // net/http/cgi takes no chunks
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Errorf("body of %s: %v", r.RequestURI, err)
			}
			r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
		}
		(&cgi.Handler{Path: backend, Stderr: io.Discard, Env: []string{
			"GIT_PROJECT_ROOT=" + projects, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=a", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + projects,
		}}).ServeHTTP(w, r)
	})
	b.works(t, "", "git", "init", "-q", "--bare", "-b", "main", filepath.Join(projects, "p.git"))
	b.works(t, "", "git", "-C", filepath.Join(projects, "p.git"), "config", "http.receivepack", "true")
	for _, scheme := range []string{"https", "http"} {
		url, dir := scheme+"://example.com/p.git", scheme
		b.works(t, "", "git", "clone", "-q", url, dir)
		// Some MiB, so that git sends them in chunks.
		if err := os.WriteFile(filepath.Join(filepath.Dir(b.ca), dir, scheme+".bin"), randomBytes(4<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		b.works(t, "", "git", "-C", dir, "checkout", "-q", "-B", "main")
		b.works(t, "", "git", "-C", dir, "add", ".")
		b.works(t, "", "git", "-C", dir, "commit", "-q", "-m", scheme)
		b.works(t, "", "git", "-C", dir, "push", "-q", "origin", "main")
		b.works(t, "refs/heads/main", "git", "ls-remote", url)
		b.works(t, scheme, "git", "-C", filepath.Join(projects, "p.git"), "log", "--format=%s", "main")
	}
	b.fails(t, "403", "git", "ls-remote", "https://evil.example/p.git")
	b.fails(t, "403", "git", "ls-remote", "http://evil.example/p.git")
}

func TestGoThroughTheProxy(t *testing.T) {
	b := newToolbox(t, func(w http.ResponseWriter, r *http.Request) {
		answer, ok := map[string]string{
			"list": "v1.2.3\n", "v1.2.3.info": `{"Version":"v1.2.3"}`, "v1.2.3.mod": "module example.com/m\n",
		}[strings.TrimPrefix(r.URL.Path, "/example.com/m/@v/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, answer)
	})
	if out, err := b.run(t, "go", "version"); err != nil {
		t.Skipf("go does not start: %v %.100s", err, out)
	}
	home := filepath.Dir(b.ca)
	b.env = append(b.env, "GOSUMDB=off", "GOTOOLCHAIN=local", "GOWORK=off", "GOENV=off", "GOFLAGS=-modcacherw", "GOPATH="+home, "GOCACHE="+home)
	list := []string{"go", "list", "-m", "-versions", "example.com/m"}
	b.env = append(b.env, "GOPROXY=https://example.com")
	b.works(t, "v1.2.3", list...)
	b.env = append(b.env, "GOPROXY=https://evil.example")
	b.fails(t, "blocked by the sandbox policy: evil.example:443", list...)
}

func randomBytes(n int) []byte {
	var b bytes.Buffer
	for seed := uint64(1); b.Len() < n; seed = seed*6364136223846793005 + 1442695040888963407 {
		b.WriteByte(byte(seed >> 33))
	}
	return b.Bytes()
}
