package main

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/postern-relay/postern/client"
	"github.com/postern-relay/postern/wire"
)

// errGaveUp means that the user did not want to wait for a lost link any longer.
var errGaveUp = errors.New("gave up waiting for the connection")

// patienceFlag is --reconnect.
type patienceFlag time.Duration

func (p *patienceFlag) add(f *pflag.FlagSet) {
	f.DurationVar((*time.Duration)(p), "reconnect", client.DefaultPatience, "how long to try to come back when the connection was lost; 0: not at all")
}

func (p patienceFlag) check() error {
	if p < 0 {
		return fmt.Errorf("--reconnect %v: a time cannot be negative", time.Duration(p))
	}
	return nil
}

// tune makes a client as patient as asked for, and tell l about its connection.
func (p patienceFlag) tune(l *link) func(*client.Config) {
	return func(cfg *client.Config) {
		if cfg.Patience = time.Duration(p); p == 0 {
			cfg.Patience = -1
		}
		cfg.Interrupted = func(i client.Interruption) {
			if i.Err != nil {
				l.lost(i.Exec, i.Err)
			} else {
				l.back(i.Exec, i.Lasted)
			}
		}
	}
}

// worthTelling is how long an interruption is when its end is news.
const worthTelling = 5 * time.Second

// link tells the user about the connection to an executor. It is safe for concurrent use.
type link struct {
	name  string
	notes *notes

	mu   sync.Mutex
	down map[wire.ExecID]bool // the execs whose connection is lost
}

func newLink(name string, std stdio, quiet bool) *link {
	return &link{name: name, notes: &notes{w: std.err, quiet: quiet}, down: make(map[wire.ExecID]bool)}
}

// lost says that the connection is lost, once until it is back.
func (l *link) lost(exec wire.ExecID, reason error) {
	l.mu.Lock()
	again := l.down[exec]
	l.down[exec] = true
	l.mu.Unlock()
	if !again {
		l.notes.say("connection to %s lost%s; exec %s goes on there, reconnecting", l.name, reasonText(reason), exec)
	}
}

// reasonText is what there is to say beyond the loss.
func reasonText(err error) string {
	text := strings.TrimSuffix(err.Error(), " ("+wire.ErrLost.Error()+")")
	if text != wire.ErrLost.Error() && text != "connection lost" {
		return ": " + text
	}
	return ""
}

func (l *link) back(exec wire.ExecID, after time.Duration) {
	l.mu.Lock()
	delete(l.down, exec)
	l.mu.Unlock()
	if after > worthTelling {
		l.notes.say("connection to %s is back after %v", l.name, after.Round(time.Second))
	}
}

// count is how many signals in a row found the link down, this one included.
func (l *link) count(before int) int {
	l.mu.Lock()
	down := len(l.down) > 0
	l.mu.Unlock()
	if !down {
		return 0
	}
	if before == 0 {
		l.notes.say("%s gets the signal when the connection is back; another one gives up waiting", l.name)
	}
	return before + 1
}
