package executortest

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postern-relay/postern/wire"
)

// builtin are the commands that every Runner has. A failed write ends one with code 1.
var builtin = map[string]Command{
	// echo WORDS... and complain WORDS... print their words and a newline.
	"echo":     func(p *Process) int { return put(p.Stdout, words(p)) },
	"complain": func(p *Process) int { return put(p.Stderr, words(p)) },
	// true, exit N and die SIGNAL end at once, with code 0, that code and by that signal.
	"true": func(*Process) int { return 0 },
	"exit": func(p *Process) int { return number(p, 1) },
	"die": func(p *Process) int {
		p.Die(wire.Signal(p.Argv[1]))
		return 0
	},
	// cat copies stdin to stdout.
	"cat": func(p *Process) int {
		_, err := io.Copy(p.Stdout, p.Stdin)
		return code(err)
	},
	// flood N [SIZE] prints the first N bytes of Pattern, SIZE at a time.
	"flood": flood,
	// sum prints how many bytes stdin has, and their SHA-256.
	"sum": func(p *Process) int { return code(sum(p, p.Stdout)) },
	// exchange N is flood N, and at the same time sum to stderr.
	"exchange": func(p *Process) int {
		var summing sync.WaitGroup
		var err error
		summing.Go(func() { err = sum(p, p.Stderr) })
		flooded := flood(p)
		summing.Wait()
		return max(flooded, code(err))
	},
	// sleep DURATION [WORDS...] waits, then prints its words.
	"sleep": func(p *Process) int {
		if !p.Sleep(duration(p, 1)) {
			return 1
		}
		if len(p.Argv) > 2 {
			return put(p.Stdout, strings.Join(p.Argv[2:], " ")+"\n")
		}
		return 0
	},
	// stubborn DURATION says "ready", ignores what can be ignored, prints each signal it gets
	// on a line and ends after the duration.
	"stubborn": func(p *Process) int {
		p.Ignore()
		put(p.Stdout, "ready\n")
		end := time.NewTimer(duration(p, 1))
		defer end.Stop()
		for {
			select {
			case s := <-p.Signals:
				put(p.Stdout, string(s)+"\n")
			case <-end.C:
				return 0
			case <-p.Context().Done():
				return 1
			}
		}
	},
	// hold DURATION WORDS... prints and ends, but its output stays open for the duration.
	"hold": func(p *Process) int {
		p.Hold(duration(p, 1))
		return put(p.Stdout, strings.Join(p.Argv[2:], " ")+"\n")
	},
	// deaf DURATION closes its stdin, says "closed" and waits.
	"deaf": func(p *Process) int {
		p.Stdin.Close()
		put(p.Stdout, "closed\n")
		p.Sleep(duration(p, 1))
		return 0
	},
}

func flood(p *Process) int {
	n, size := number(p, 1), wire.MaxChunk
	if len(p.Argv) > 2 {
		size = number(p, 2)
	}
	if size < 1 {
		return 2
	}
	for at := 0; at < n; at += size {
		if _, err := p.Stdout.Write(PatternAt(at, min(size, n-at))); err != nil {
			return 1
		}
	}
	return 0
}

func sum(p *Process, w io.Writer) error {
	h := sha256.New()
	n, err := io.Copy(h, p.Stdin)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%d %x\n", n, h.Sum(nil))
	return err
}

// Sum is what the command sum prints for this input.
func Sum(input []byte) string { return fmt.Sprintf("%d %x\n", len(input), sha256.Sum256(input)) }

// Pattern is the first n bytes of an endless text in which every place looks different, so that
// bytes that are lost, repeated or moved show.
func Pattern(n int) []byte { return PatternAt(0, n) }

// PatternAt is n bytes of it from a place on.
func PatternAt(at, n int) []byte {
	b := make([]byte, 0, n+16)
	for word := uint64(at / 8); len(b) < n+at%8; word++ {
		x := (word + 1) * 0x9e3779b97f4a7c15
		x ^= x >> 29
		b = binary.LittleEndian.AppendUint64(b, x*0xbf58476d1ce4e5b9)
	}
	return b[at%8 : at%8+n]
}

func words(p *Process) string { return strings.Join(p.Argv[1:], " ") + "\n" }

func put(w io.Writer, text string) int {
	_, err := io.WriteString(w, text)
	return code(err)
}

func code(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// number is word i; a wrong one is -1, with which no command does anything.
func number(p *Process, i int) int {
	if i >= len(p.Argv) {
		return -1
	}
	n, err := strconv.Atoi(p.Argv[i])
	if err != nil {
		return -1
	}
	return n
}

func duration(p *Process, i int) time.Duration {
	if i >= len(p.Argv) {
		return 0
	}
	d, err := time.ParseDuration(p.Argv[i])
	if err != nil {
		return 0
	}
	return d
}
