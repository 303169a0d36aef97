//go:build toolchains

package executor

import (
	"strings"
	"testing"

	"github.com/postern-relay/postern/wire"
)

// These tests run tools through the allow-list to servers outside the sandbox, with TLS from the tool to the server. Nothing is
// set for the tools but where they find what they ask for, and whom they trust: the proxy they find by themselves.

// errand is what a tool does in the shop.
type errand struct {
	programs  []string
	stock     func(*shop) // puts into the shop and the workspace what it takes
	script    string
	want      string // the end of what it prints
	unfailing bool   // it ends with success whatever it could not load
}

var errands = map[string]errand{
	"npm install": {
		programs: []string{"node", "npm"},
		stock:    (*shop).serveNPM,
		script: `export npm_config_registry=$SHOP/npm/ npm_config_cafile=$PWD/ca.pem npm_config_fetch_retries=0
mkdir -p app && cd app && npm install --no-audit --no-fund greeter >&2
grep -q '"integrity": "sha512-' package-lock.json
node -p 'require("greeter")'`,
		want: "hello from npm",
	},
	"pip install": {
		programs: []string{"python3"},
		stock:    (*shop).servePython,
		script: `python3 -m venv env
env/bin/pip --disable-pip-version-check install --retries 0 --cert ca.pem --index-url $SHOP/simple/ greeter >&2
env/bin/python -c 'import greeter; print(greeter.WORDS)'`,
		want: "hello from pip",
	},
	"git clone and push": {
		programs: []string{"git"},
		stock:    func(s *shop) { s.serveGit("project.git") },
		script: `export GIT_SSL_CAINFO=$PWD/ca.pem GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.test
git clone --quiet $SHOP/git/project.git project
cd project
echo one > a.txt && git add a.txt && git commit --quiet --message=first
git push --quiet origin HEAD:main
cd .. && git clone --quiet $SHOP/git/project.git again
git -C again log --format=%s`,
		want: "first",
	},
	"go mod download": {
		programs: []string{"go"},
		stock: func(s *shop) {
			s.serveGo()
			s.file("app/go.mod", "module example.test/app\n\ngo 1.21\n\nrequire example.test/greeter v1.0.0\n")
			s.file("app/main.go", "package main\n\nimport \"example.test/greeter\"\n\nfunc main() { println(greeter.Words) }\n")
		},
		script: `export GOPROXY=$SHOP/goproxy GOSUMDB=off GOTOOLCHAIN=local SSL_CERT_FILE=$PWD/ca.pem CGO_ENABLED=0 GOFLAGS=-mod=mod
unset GOPRIVATE GONOPROXY GONOSUMDB
cd app && go mod download all && go run . 2>&1`,
		want: "hello from go",
	},
	"cargo build": {
		programs: []string{"cargo", "git", "gcc"},
		stock: func(s *shop) {
			s.serveCargo()
			s.file("app/Cargo.toml", "[package]\nname = \"app\"\nversion = \"0.0.1\"\nedition = \"2021\"\n\n[dependencies]\ngreeter = { version = \"1.0.0\", registry = \"shop\" }\n")
			s.file("app/src/main.rs", "fn main() { println!(\"{}\", greeter::WORDS) }\n")
		},
		script: `export CARGO_HTTP_CAINFO=$PWD/ca.pem GIT_SSL_CAINFO=$PWD/ca.pem CARGO_NET_RETRY=0 CARGO_NET_GIT_FETCH_WITH_CLI=true
minor=$(cargo --version | cut -d. -f2)
export CARGO_REGISTRIES_SHOP_INDEX=$SHOP/git/index.git
if [ "$minor" -ge 68 ]; then CARGO_REGISTRIES_SHOP_INDEX=sparse+$SHOP/index/; fi
cd app && cargo build --quiet && target/debug/app`,
		want: "hello from cargo",
	},
	"wget": {
		programs: []string{"wget"},
		stock:    func(s *shop) { s.serve("/words", []byte("hello from wget\n")) },
		script:   `wget --quiet --tries=1 --ca-certificate=ca.pem --output-document=- $SHOP/words`,
		want:     "hello from wget",
	},
	"python's urllib": {
		programs: []string{"python3"},
		stock:    func(s *shop) { s.serve("/words", []byte("hello from urllib\n")) },
		script: `SSL_CERT_FILE=ca.pem python3 -c '
import os, urllib.request
print(urllib.request.urlopen(os.environ["SHOP"] + "/words").read().decode())'`,
		want: "hello from urllib",
	},
	// pip has its own copy of requests, so that it is there wherever pip is.
	"python's requests": {
		programs: []string{"python3"},
		stock:    func(s *shop) { s.serve("/words", []byte("hello from requests\n")) },
		script: `python3 -m venv env && REQUESTS_CA_BUNDLE=ca.pem env/bin/python -c '
import os
from pip._vendor import requests
print(requests.get(os.environ["SHOP"] + "/words").text)'`,
		want: "hello from requests",
	},
	// The browser has its authorities in a database of its own, and is told to ask nobody; who the server is, the
	// proxy's list says.
	"chromium": {
		programs: []string{"chromium"},
		stock: func(s *shop) {
			s.serve("/page.html", []byte("<!doctype html><title>page</title><p id=words></p><script>document.getElementById('words').textContent = 'hello from ' + 'chromium'</script>"))
		},
		script: `chromium --headless --no-sandbox --disable-gpu --disable-background-networking --disable-component-update --ignore-certificate-errors \
	--proxy-server=127.0.0.1:3128 --virtual-time-budget=5000 --dump-dom $SHOP/page.html | grep -o 'hello from chromium' || true`,
		want:      "hello from chromium",
		unfailing: true,
	},
}

func TestToolsReachWhatIsAllowed(t *testing.T) {
	for name, e := range errands {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, e.programs...)
			e.stock(s)
			got := s.visit(e.script, s.address())
			if got.code != 0 || !strings.HasSuffix(strings.TrimSpace(got.stdout), e.want) {
				t.Errorf("ended with %d (%+v), stdout %q, want %q, stderr %s", got.code, got.status, got.stdout, e.want, got.stderr)
			}
			if got.refused(s.address()) {
				t.Errorf("was allowed, and is told to be denied: %v", got.status.Denials)
			}
		})
	}
}

// A list with other hosts, or the right one with another port, is as good as none, and Exit says which one is missing.
func TestToolsAreToldWhichHostIsNotAllowed(t *testing.T) {
	for name, e := range errands {
		t.Run(name, func(t *testing.T) {
			s := newShop(t, e.programs...)
			e.stock(s)
			got := s.visit(e.script, "elsewhere.example:"+s.port, shopHost+":1")
			if got.status.Success() != e.unfailing || strings.Contains(got.stdout, e.want) {
				t.Errorf("ended with %d (%+v), stdout %q, stderr %s", got.code, got.status, got.stdout, got.stderr)
			}
			if !got.refused(s.address()) {
				t.Errorf("want a denial of %s by the proxy: %v, stderr %s", s.address(), got.status.Denials, got.stderr)
			}
		})
	}
}

// Without an allow-list there is no proxy either, whatever a tool is told.
func TestToolsReachNothingWithoutANetwork(t *testing.T) {
	s := newShop(t, "wget")
	s.serve("/words", []byte("hello\n"))
	got := s.start(wire.ExecParams{
		Argv: []string{"/bin/sh", "-euc", `https_proxy=http://127.0.0.1:3128 wget --tries=1 --ca-certificate=ca.pem --output-document=- $SHOP/words`},
	}, nil)
	if got.status.Success() || !strings.Contains(got.stderr, "refused") {
		t.Errorf("ended with %d, stdout %q, stderr %s", got.code, got.stdout, got.stderr)
	}
}
