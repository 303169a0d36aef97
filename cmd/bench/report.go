//go:build linux

package main

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// report is what a run found. It is encoded as JSON, and printed as Markdown.
type report struct {
	When     time.Time       `json:"when"`
	Command  string          `json:"command"`
	Revision string          `json:"revision"`
	Machine  machine         `json:"machine"`
	SSH      string          `json:"ssh,omitempty"` // why there is no ssh
	Peers    []peerReport    `json:"peers,omitempty"`
	Measures []measureReport `json:"measures"`
	Growth   []growth        `json:"growth,omitempty"`
}

// peerReport is what an ssh peer is.
type peerReport struct {
	Name    string `json:"name"`
	Path    string `json:"path"`
	Version string `json:"version,omitempty"`
	Kex     string `json:"kex,omitempty"`
	Cipher  string `json:"cipher,omitempty"`
	NoDelay bool   `json:"no_delay"`          // on both connections to the jump host
	Missing string `json:"missing,omitempty"` // why it was not measured
}

func (s *sshSite) describe(path string) peerReport {
	return peerReport{Name: s.name, Path: path, Version: s.version, Kex: s.agreedKex, Cipher: s.agreedCipher, NoDelay: s.noDelay}
}

// measureReport is one measure.
type measureReport struct {
	Name    string             `json:"name"`
	Path    string             `json:"path"`
	About   string             `json:"about"`
	Rounds  int                `json:"rounds"`
	When    time.Time          `json:"when"` // its end
	Load    spread             `json:"load"` // of the machine, at the beginning of each round
	Rows    []row              `json:"rows"`
	Samples map[string]figures `json:"samples"` // by side
}

// figures are by quantity, then by round.
type figures map[string][]float64

// row compares one quantity of postern's with a peer's, or only states it.
type row struct {
	Quantity  string  `json:"quantity"`
	Unit      string  `json:"unit,omitempty"`
	More      bool    `json:"more_is_better"`
	Subject   string  `json:"subject"`
	Value     spread  `json:"value"`
	Peer      string  `json:"peer,omitempty"`
	PeerValue *spread `json:"peer_value,omitempty"`
	Ratio     *spread `json:"ratio,omitempty"` // of the rounds
	Target    *target `json:"target,omitempty"`
	MeetsMust bool    `json:"meets_must"` // both false without a target
	MeetsAim  bool    `json:"meets_aim"`
}

// add makes the rows of a measure: each of postern's sides beside each peer.
func (r *report) add(m *measure, all samples, delay time.Duration) {
	d := measureReport{Name: m.name, Path: m.path, About: m.about, Rounds: m.rounds, When: time.Now(), Load: spreadOf(m.loads), Samples: make(map[string]figures)}
	where := m.path
	if where != delayed {
		where = loopback
	}
	for q, quantity := range m.quantities {
		for _, subject := range m.contenders {
			if d.Samples[subject.name] == nil {
				d.Samples[subject.name] = make(figures)
			}
			d.Samples[subject.name][quantity.name] = all[subject.name][q]
			if subject.peer {
				continue
			}
			values := all[subject.name][q]
			plain := row{Quantity: quantity.name, Unit: quantity.unit, More: quantity.more, Subject: subject.name, Value: spreadOf(values)}
			compared := 0
			for _, peer := range m.contenders {
				if !peer.peer {
					continue
				}
				compared++
				row := plain
				theirs := spreadOf(all[peer.name][q])
				row.Peer, row.PeerValue = peer.name, &theirs
				// What is too little to be counted at the peer has no ratio.
				if ratio := spreadOf(ratios(values, all[peer.name][q])); !math.IsNaN(ratio.Median+ratio.P10+ratio.P90) && !math.IsInf(ratio.P10+ratio.P90, 0) {
					row.Ratio = &ratio
					row.judge(targetOf(m.name, where, quantity.name, subject.name, peer.name, delay), ratio.Median)
				}
				d.Rows = append(d.Rows, row)
			}
			if t := targetOf(m.name, where, quantity.name, subject.name, "", delay); t != nil || compared == 0 {
				plain.judge(t, plain.Value.Median)
				d.Rows = append(d.Rows, plain)
			}
		}
	}
	r.Measures = append(r.Measures, d)
}

func (w *row) judge(t *target, figure float64) {
	if t != nil {
		w.Target, w.MeetsMust, w.MeetsAim = t, t.meets(figure, t.Must), t.meets(figure, t.Aim)
	}
}

// verdict is what the last column says.
func (w *row) verdict() string {
	if w.Target == nil {
		return ""
	}
	sign := "≤"
	if w.Target.AtLeast {
		sign = "≥"
	}
	word := func(met bool) string {
		if met {
			return "met"
		}
		return "**missed**"
	}
	return fmt.Sprintf("%s %g %s, %s %g %s", sign, w.Target.Must, word(w.MeetsMust), sign, w.Target.Aim, word(w.MeetsAim))
}

// number has three digits that count.
func number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v):
		return "-"
	case v == 0:
		return "0"
	case a >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case a >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case a >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 3, 64)
}

func withUnit(s spread, unit string) string {
	return strings.TrimSpace(number(s.Median) + " " + unit)
}

// markdown is the whole table, with what one must know to read it.
func (r *report) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, revision %s, `%s`\n\n", r.When.UTC().Format("2006-01-02 15:04 MST"), r.Revision, r.Command)
	fmt.Fprintf(&b, "%s\n\n", r.Machine)
	if r.SSH != "" {
		fmt.Fprintf(&b, "ssh: %s\n\n", r.SSH)
	}
	r.peerTable(&b)
	b.WriteString("| measure | path | figure | side | value | peer | its value | ratio (p10 to p90) | must, aim |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, m := range r.Measures {
		for _, w := range m.Rows {
			peer, theirs, ratio := "", "", ""
			if w.PeerValue != nil {
				peer, theirs = w.Peer, withUnit(*w.PeerValue, w.Unit)
			} else if r.SSH != "" && (m.Path == loopback || m.Path == delayed) && m.Name != sandboxStart {
				peer = "ssh: not measured"
			}
			if w.Ratio != nil {
				ratio = fmt.Sprintf("%s (%s to %s)", number(w.Ratio.Median), number(w.Ratio.P10), number(w.Ratio.P90))
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", m.Name, m.Path, w.Quantity, w.Subject, withUnit(w.Value, w.Unit), peer, theirs, ratio, w.verdict())
		}
	}
	b.WriteString("\nWhat each one is, and how busy the machine was (load, with the measure's own):\n\n")
	told := make(map[string]bool)
	for _, m := range r.Measures {
		if told[m.Name] {
			continue
		}
		told[m.Name] = true
		var busy []string
		for _, other := range r.Measures {
			if other.Name == m.Name && other.Load.Median > 0 {
				busy = append(busy, fmt.Sprintf("%s %.0f", other.Path, other.Load.Median))
			}
		}
		fmt.Fprintf(&b, "- **%s** (rounds: %d; load: %s): %s.\n", m.Name, m.Rounds, cmp.Or(strings.Join(busy, ", "), "not known"), m.About)
	}
	return b.String()
}

func (r *report) peerTable(b *strings.Builder) {
	if len(r.Peers) == 0 {
		return
	}
	b.WriteString("| peer | path | version | key exchange | cipher | Nagle at the jump host |\n|---|---|---|---|---|---|\n")
	for _, p := range r.Peers {
		if p.Missing != "" {
			fmt.Fprintf(b, "| %s | %s | does not work here: %s | | | |\n", p.Name, p.Path, strings.ReplaceAll(strings.TrimSpace(p.Missing), "\n", " "))
			continue
		}
		nagle := "on, as it comes"
		if p.NoDelay {
			nagle = "off"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", p.Name, p.Path, p.Version, p.Kex, p.Cipher, nagle)
	}
	b.WriteString("\n")
}
