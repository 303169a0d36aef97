package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/pflag"
)

// observation is what a daemon shows to those who watch it: on a listener of its own, since peers have no business
// there and watchers none on the other. Nothing on it changes anything, and nothing on it is secret, but it tells
// who is there: it belongs on loopback or behind something that asks who comes.
type observation struct {
	address  string // host:port; empty: nothing is shown
	pprof    bool
	registry *prometheus.Registry
	// ready is nil while the daemon takes new work, and else says why it does not.
	ready func() error
	// status is for people and scripts, and encoded as JSON.
	status func() any
}

// newRegistry is a registry with what every process has, and this build's version.
func newRegistry(part string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Namespace: "postern", Subsystem: part, Name: "build_info", Help: "Constant 1, with the build as labels.",
		ConstLabels: prometheus.Labels{"version": buildVersion(), "revision": buildRevision(), "goversion": runtime.Version()},
	})
	info.Set(1)
	r.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

func (o *observation) add(f *pflag.FlagSet) {
	f.StringVar(&o.address, "metrics", "", "HOST:PORT for /metrics, /livez, /readyz and /statusz, such as 127.0.0.1:9464 (default: none)")
	f.BoolVar(&o.pprof, "pprof", false, "also show /debug/pprof/ there")
}

func (o *observation) check() error {
	if o.address == "" {
		if o.pprof {
			return errors.New("--pprof needs --metrics HOST:PORT, where it is shown")
		}
		return nil
	}
	if host, port, err := net.SplitHostPort(o.address); err != nil || host == "" || !isPort(port) {
		return fmt.Errorf("--metrics %q: want HOST:PORT, such as 127.0.0.1:9464", o.address)
	}
	return nil
}

// monitor is the listener while it is open.
type monitor struct {
	server *http.Server
	addr   net.Addr
	ended  chan error
}

// open listens; nil where nothing is shown.
func (o *observation) open(log *slog.Logger) (*monitor, error) {
	if o.address == "" {
		return nil, nil
	}
	l, err := net.Listen("tcp", o.address)
	if err != nil {
		return nil, fmt.Errorf("--metrics: %w", err)
	}
	w := &monitor{
		server: &http.Server{
			Handler: o.handler(log), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute,
			WriteTimeout: 2 * time.Minute, // a profile takes half a minute
			ErrorLog:     slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		},
		addr: l.Addr(), ended: make(chan error, 1),
	}
	go func() { w.ended <- w.server.Serve(l) }()
	log.Info("metrics are shown", "address", l.Addr().String())
	return w, nil
}

// close ends it, after the answers that are under way.
func (w *monitor) close() {
	if w == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if w.server.Shutdown(ctx) != nil {
		w.server.Close()
	}
	<-w.ended
}

func (o *observation) handler(log *slog.Logger) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{
		EnableOpenMetrics: true, MaxRequestsInFlight: 4, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
	}))
	// It answers, so it lives; nothing else is looked at.
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := o.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /statusz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		_ = e.Encode(o.status()) // an error is the watcher's, who has gone
	})
	if o.pprof {
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/cmdline", http.NotFound) // words of the command line are nobody's business
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	return mux
}
