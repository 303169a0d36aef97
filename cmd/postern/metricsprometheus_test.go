//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// prometheusServer is a real Prometheus on loopback, which scrapes one relay.
type prometheusServer struct {
	t   *testing.T
	url string
	log lockedBuffer
}

// startPrometheus runs one until the test ends, with the shipped configuration and rules, but for what would make a test
// wait: it scrapes often, and alerts fire at once.
func startPrometheus(t *testing.T, w *watchedRelay) *prometheusServer {
	t.Helper()
	dir := t.TempDir()
	put := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	config := readText(t, "deploy/prometheus/prometheus.yml")
	for old, short := range map[string]string{
		"_interval: 15s": "_interval: 400ms",
		"127.0.0.1:9464": strings.TrimPrefix(w.watch, "http://"),
	} {
		if !strings.Contains(config, old) {
			t.Fatalf("the shipped configuration has no %q", old)
		}
		config = strings.ReplaceAll(config, old, short)
	}
	put("prometheus.yml", config)
	put("rules.yml", regexp.MustCompile(`(?m)^( +for:) .*$`).ReplaceAllString(readText(t, "deploy/prometheus/rules.yml"), "$1 0s"))

	p := &prometheusServer{t: t}
	cmd := exec.Command("prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", "127.0.0.1:0")
	cmd.Stdout, cmd.Stderr = &p.log, &p.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended:
		case <-time.After(patience):
			_ = cmd.Process.Kill() // the same
			<-ended
		}
		if t.Failed() {
			t.Logf("Prometheus said:\n%s", p.log.String())
		}
	})
	listens := regexp.MustCompile(`Listening on.* address=(127\.0\.0\.1:[1-9][0-9]*)`)
	if !eventually(func() bool {
		m := listens.FindStringSubmatch(p.log.String())
		if m == nil {
			return false
		}
		p.url = "http://" + m[1]
		response, err := http.Get(p.url + "/-/ready")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}) {
		t.Fatal("Prometheus does not get ready")
	}
	return p
}

// queryResult is a series that a query finds.
type queryResult struct {
	Metric map[string]string
	Value  [2]any // a time, and the value as a text
}

// query evaluates an expression now.
func (p *prometheusServer) query(expr string) ([]queryResult, error) {
	response, err := http.Get(p.url + "/api/v1/query?query=" + url.QueryEscape(expr))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          struct{ Result []queryResult }
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, err
	}
	if answer.Status != "success" {
		return nil, fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return answer.Data.Result, nil
}

// finds waits until an expression has a result.
func (p *prometheusServer) finds(what, expr string) {
	p.t.Helper()
	var last error
	if !eventually(func() bool {
		found, err := p.query(expr)
		last = err
		return len(found) > 0
	}) {
		p.t.Fatalf("%s: %s never has a result: %v", what, expr, last)
	}
}

// firing are the names of the alerts that fire now.
func (p *prometheusServer) firing() map[string]bool {
	p.t.Helper()
	found, err := p.query(`ALERTS{alertstate="firing"}`)
	if err != nil {
		p.t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, r := range found {
		names[r.Metric["alertname"]] = true
	}
	return names
}
