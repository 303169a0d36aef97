//go:build toolchains

package executor

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postern-relay/postern/sandbox"
	"github.com/postern-relay/postern/wire"
)

// shopHost is the name of the shop, which only the proxy's look-up knows.
const shopHost = "packages.example"

// shop is a bench whose commands may reach a server outside the sandbox: the registries and repositories of all tools under
// one name, with a certificate of an authority that is made for the test and lies in the workspace.
type shop struct {
	*bench
	port string
	mux  *http.ServeMux
}

func newShop(t *testing.T, programs ...string) *shop {
	t.Helper()
	workspace := t.TempDir()
	s := &shop{mux: http.NewServeMux()}
	server := httptest.NewUnstartedServer(s.mux)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // browsers try a connection and drop it
	var authority []byte
	server.TLS = &tls.Config{}
	server.TLS.Certificates, authority = shopCertificate(t)
	server.StartTLS()
	t.Cleanup(server.Close)
	_, s.port, _ = net.SplitHostPort(server.Listener.Addr().String())
	l, err := sandbox.NewLauncher(sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	runner := NewSandboxRunner(l, netip.MustParsePrefix("127.0.0.0/8")).(*sandboxRunner)
	runner.proxies.lookup = func(_ context.Context, host string) ([]netip.Addr, error) {
		if host == shopHost {
			return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
		}
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	backend, err := NewLocal(LocalConfig{
		Runner: runner, Workspaces: []string{workspace}, Environ: os.Environ(), Network: Network{Mode: wire.NetworkAllowList, Any: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { backend.Close() })
	s.bench = &bench{t: t, backend: backend, workspace: workspace, env: []string{"LC_ALL=C.UTF-8", "SHOP=" + s.url()}}
	s.need(programs...)
	s.file("ca.pem", string(authority))
	return s
}

func (s *shop) address() string { return net.JoinHostPort(shopHost, s.port) }
func (s *shop) url() string     { return "https://" + s.address() }

// visit runs a script that may reach these hosts.
func (s *shop) visit(script string, hosts ...string) ended {
	s.t.Helper()
	return s.start(wire.ExecParams{
		Argv: []string{"/bin/sh", "-euc", script}, Network: wire.Network{Mode: wire.NetworkAllowList, Allow: hosts},
	}, nil)
}

// serve has the shop answer this at a path.
func (s *shop) serve(path string, body []byte) {
	s.mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, path, time.Time{}, bytes.NewReader(body))
	})
}

// shopCertificate is the server's, and its authority as PEM.
func shopCertificate(t *testing.T) ([]tls.Certificate, []byte) {
	t.Helper()
	made := func(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) ([]byte, *ecdsa.PrivateKey) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		if signer == nil {
			signer = key
		}
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			t.Fatal(err)
		}
		return der, key
	}
	root := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Test Authority"}, KeyUsage: x509.KeyUsageCertSign,
		IsCA: true, BasicConstraintsValid: true,
	}
	rootDER, rootKey := made(root, root, nil)
	root, err := x509.ParseCertificate(rootDER)
	if err != nil {
		t.Fatal(err)
	}
	leafDER, leafKey := made(&x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: shopHost}, DNSNames: []string{shopHost},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, root, rootKey)
	return []tls.Certificate{{Certificate: [][]byte{leafDER}, PrivateKey: leafKey}},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: rootDER})
}

// tarball is a .tar.gz of these files.
func tarball(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zipped is a .zip of these files.
func zipped(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range files {
		w, err := z.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, text)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// serveNPM is a registry with one package, whose tarball has the hash that its packument tells.
func (s *shop) serveNPM() {
	file := tarball(s.t, map[string]string{
		"package/package.json": `{"name": "greeter", "version": "1.0.0", "main": "index.js"}`,
		"package/index.js":     "module.exports = 'hello from npm'\n",
	})
	sum := sha512.Sum512(file)
	s.serve("/npm/greeter", fmt.Appendf(nil, `{"name": "greeter", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {
  "name": "greeter", "version": "1.0.0", "main": "index.js",
  "dist": {"integrity": "sha512-%s", "tarball": "%s/npm/greeter/-/greeter-1.0.0.tgz"}}}}`, base64.StdEncoding.EncodeToString(sum[:]), s.url()))
	s.serve("/npm/greeter/-/greeter-1.0.0.tgz", file)
}

// servePython is a simple index (PEP 503) with one wheel.
func (s *shop) servePython() {
	const name, dist = "greeter-1.0-py3-none-any.whl", "greeter-1.0.dist-info"
	files := map[string]string{
		"greeter.py":       "WORDS = 'hello from pip'\n",
		dist + "/METADATA": "Metadata-Version: 2.1\nName: greeter\nVersion: 1.0\n",
		dist + "/WHEEL":    "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
	}
	var record strings.Builder
	for path, text := range files {
		sum := sha256.Sum256([]byte(text))
		fmt.Fprintf(&record, "%s,sha256=%s,%d\n", path, base64.RawURLEncoding.EncodeToString(sum[:]), len(text))
	}
	files[dist+"/RECORD"] = record.String() + dist + "/RECORD,,\n"
	wheel := zipped(s.t, files)
	sum := sha256.Sum256(wheel)
	s.mux.HandleFunc("/simple/greeter/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, "<!DOCTYPE html><a href=\"../../wheels/%s#sha256=%s\">%s</a>", name, hex.EncodeToString(sum[:]), name)
	})
	s.serve("/wheels/"+name, wheel)
}

// serveGo is a module proxy with one module.
func (s *shop) serveGo() {
	const module, mod = "example.test/greeter", "module example.test/greeter\n\ngo 1.21\n"
	s.serve("/goproxy/"+module+"/@v/v1.0.0.info", []byte(`{"Version": "v1.0.0", "Time": "2024-01-01T00:00:00Z"}`))
	s.serve("/goproxy/"+module+"/@v/v1.0.0.mod", []byte(mod))
	s.serve("/goproxy/"+module+"/@v/v1.0.0.zip", zipped(s.t, map[string]string{
		module + "@v1.0.0/go.mod":     mod,
		module + "@v1.0.0/greeter.go": "package greeter\n\nconst Words = \"hello from go\"\n",
	}))
}

// serveGit is git's own server (git http-backend) with an empty repository that takes what is pushed, and its folder.
func (s *shop) serveGit(name string) string {
	root := s.t.TempDir()
	bare := filepath.Join(root, name)
	gitOutside(s.t, root, "init", "--quiet", "--bare", "--initial-branch=main", name)
	gitOutside(s.t, bare, "config", "http.receivepack", "true")
	s.mux.Handle("/git/", &cgi.Handler{
		Path: filepath.Join(gitOutside(s.t, root, "--exec-path"), "git-http-backend"), Root: "/git",
		Env:    []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "REMOTE_USER=pusher"},
		Logger: log.New(io.Discard, "", 0), Stderr: io.Discard,
	})
	return bare
}

// serveCargo is a registry with one crate: its index as files, which is what the prefix sparse+ means, and as the
// repository that cargo before 1.68 wants.
func (s *shop) serveCargo() {
	crate := tarball(s.t, map[string]string{
		"greeter-1.0.0/Cargo.toml": "[package]\nname = \"greeter\"\nversion = \"1.0.0\"\nedition = \"2021\"\n",
		"greeter-1.0.0/src/lib.rs": "pub const WORDS: &str = \"hello from cargo\";\n",
	})
	sum := sha256.Sum256(crate)
	index := map[string]string{
		"config.json":   `{"dl": "` + s.url() + `/crates/{crate}-{version}.crate"}`,
		"gr/ee/greeter": fmt.Sprintf(`{"name":"greeter","vers":"1.0.0","deps":[],"cksum":"%x","features":{},"yanked":false}`+"\n", sum),
	}
	s.serve("/crates/greeter-1.0.0.crate", crate)
	bare, work := s.serveGit("index.git"), s.t.TempDir()
	for name, text := range index {
		s.serve("/index/"+name, []byte(text))
		if err := os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o755); err != nil {
			s.t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	gitOutside(s.t, work, "init", "--quiet", "--initial-branch=main")
	gitOutside(s.t, work, "add", "--all")
	gitOutside(s.t, work, "commit", "--quiet", "--message=index")
	gitOutside(s.t, work, "push", "--quiet", bare, "main")
}

// refused reports whether Exit says that the proxy refused this destination.
func (e ended) refused(destination string) bool {
	return slices.ContainsFunc(e.status.Denials, func(d wire.Denial) bool {
		return d.Kind == wire.DenialNetwork && d.Evidence == wire.EvidenceProxy && d.Subject == destination
	})
}
