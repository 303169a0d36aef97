package main

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/postern-relay/postern/wire/quicconn"
)

// What a relay's process knows beside its server: strangers, the socket, reloads.

func relayDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("postern_relay_"+name, help, labels, nil)
}

var (
	strangersDesc = relayDesc("strangers_limited_total", "Packets and connections of unauthenticated peers that a limit has met.", "limit")
	openingDesc   = relayDesc("connections_unadmitted", "Connections from their first packet to their admission.")
	windowsDesc   = relayDesc("window_bytes", "Bytes that receive windows have grown by.")
	windowsMost   = relayDesc("window_bytes_limit", "Bytes that receive windows may grow by.")
	dropsDesc     = relayDesc("udp_receive_drops_total", "Packets that the kernel dropped because the receive buffer was full.")
	bufferDesc    = relayDesc("udp_receive_buffer_bytes", "Receive buffer of the socket, in the kernel's bytes.")
)

// guardCollector shows what strangers cost.
type guardCollector struct{ guard *quicconn.Guard }

func (c guardCollector) Describe(d chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{strangersDesc, openingDesc, windowsDesc, windowsMost} {
		d <- desc
	}
}

func (c guardCollector) Collect(m chan<- prometheus.Metric) {
	for reason, n := range c.guard.Counts() {
		m <- prometheus.MustNewConstMetric(strangersDesc, prometheus.CounterValue, float64(n), string(reason))
	}
	m <- prometheus.MustNewConstMetric(openingDesc, prometheus.GaugeValue, float64(c.guard.InFlight()))
	m <- prometheus.MustNewConstMetric(windowsDesc, prometheus.GaugeValue, float64(c.guard.BudgetUsed()))
	m <- prometheus.MustNewConstMetric(windowsMost, prometheus.GaugeValue, float64(c.guard.Budget()))
}

// socketCollector shows the kernel's side of the socket, where it tells.
type socketCollector struct{ listener *quicconn.Listener }

func (c socketCollector) Describe(d chan<- *prometheus.Desc) {
	d <- dropsDesc
	d <- bufferDesc
}

func (c socketCollector) Collect(m chan<- prometheus.Metric) {
	if drops, buffer, ok := c.listener.SocketStats(); ok {
		m <- prometheus.MustNewConstMetric(dropsDesc, prometheus.CounterValue, float64(drops))
		m <- prometheus.MustNewConstMetric(bufferDesc, prometheus.GaugeValue, float64(buffer))
	}
}

// reloads shows whether what the lists and the settings say is in force. One of them that is good does not hide another that is
// bad, so this is asked of each when somebody looks, and no event sets it.
type reloads struct {
	at          prometheus.Gauge
	badSettings atomic.Bool // as last reread
}

func newReloads(r prometheus.Registerer, badLists func() error) *reloads {
	options := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "postern", Subsystem: "relay", Name: name, Help: help}
	}
	l := &reloads{at: prometheus.NewGauge(options("config_reload_success_timestamp_seconds", "When a change was accepted last."))}
	success := prometheus.NewGaugeFunc(options("config_reload_success", "1 if the last change of each list and of the settings was accepted."), func() float64 {
		if l.badSettings.Load() || badLists() != nil {
			return 0
		}
		return 1
	})
	r.MustRegister(l.at, success)
	l.accepted()
	return l
}

// accepted notes that a change is in force.
func (l *reloads) accepted() { l.at.SetToCurrentTime() }
