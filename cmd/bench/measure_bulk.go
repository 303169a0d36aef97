//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// bulk is one direction of a bulk measure.
type bulk struct {
	bytes int
	up    bool
}

// argv is what runs on the executor.
func (k bulk) argv() []string {
	if k.up {
		return []string{"wc", "-c"}
	}
	return []string{"head", "-c", strconv.Itoa(k.bytes), "/dev/zero"}
}

// carry runs a client process and counts what passes.
func (k bulk) carry(cmd *exec.Cmd) error {
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var in io.WriteCloser
	if k.up {
		if in, err = cmd.StdinPipe(); err != nil {
			return err
		}
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if k.up {
		err = errors.Join(k.send(in), k.confirm(out))
	} else {
		err = k.count(out)
	}
	if err != nil {
		_ = cmd.Cancel() // it may have ended
	}
	if errWait := cmd.Wait(); err != nil || errWait != nil {
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], errors.Join(err, errWait), strings.TrimSpace(said.String()))
	}
	return nil
}

const bulkBuffer = 128 << 10

func (k bulk) send(w io.WriteCloser) error {
	buf := make([]byte, bulkBuffer)
	for left := k.bytes; left > 0; {
		n, err := w.Write(buf[:min(left, len(buf))])
		if err != nil {
			return err
		}
		left -= n
	}
	return w.Close()
}

// confirm reads how many bytes wc has got.
func (k bulk) confirm(r io.Reader) error {
	text, err := io.ReadAll(r)
	if got := strings.TrimSpace(string(text)); err == nil && got != strconv.Itoa(k.bytes) {
		err = fmt.Errorf("the command got %q bytes of %d", got, k.bytes)
	}
	return err
}

func (k bulk) count(r io.Reader) error {
	buf := make([]byte, bulkBuffer)
	got := 0
	for {
		n, err := r.Read(buf)
		got += n
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
	}
	if got != k.bytes {
		return fmt.Errorf("%d bytes came of %d", got, k.bytes)
	}
	return nil
}

// sample yields MB/s, from the start of the client process to its end, and the CPU seconds that the one in the middle uses for a GB.
func (k bulk) sample(command func(context.Context) *exec.Cmd, middle func() float64) func(context.Context) ([]float64, error) {
	return func(ctx context.Context) ([]float64, error) {
		cpu, begun := middle(), time.Now()
		if err := k.carry(command(ctx)); err != nil {
			return nil, err
		}
		took := time.Since(begun)
		return []float64{float64(k.bytes) / 1e6 / took.Seconds(), (middle() - cpu) / float64(k.bytes) * 1e9}, nil
	}
}

func measureDown(_ context.Context, b *bench, p *path) (*measure, error) {
	return b.measureBulk(p, bulkDown, false, "`head -c N /dev/zero` to a pipe here, bytes counted"), nil
}

func measureUp(_ context.Context, b *bench, p *path) (*measure, error) {
	return b.measureBulk(p, bulkUp, true, "zeros from a pipe here to `wc -c`, whose count is checked"), nil
}

func (b *bench) measureBulk(p *path, name string, up bool, about string) *measure {
	k := bulk{96_000_000, up}
	switch {
	case b.o.quick:
		k.bytes = 4_000_000
	case p.delay > 0:
		k.bytes = 24_000_000
	}
	flag := "-q"
	if up {
		flag = "-i"
	}
	m := &measure{
		name: name, path: p.name, rounds: b.rounds(0.7),
		about:      fmt.Sprintf("%s, start and end of the client process included: `postern exec`, `ssh` through a ControlMaster. CPU in the middle: of the relay, or of the jump host's sshd and its children. 96 MB, 24 MB on the delayed path", about),
		quantities: []quantity{{"rate", "MB/s", true}, {name: "CPU in the middle", unit: "s/GB"}},
		contenders: []contender{{name: postern, sample: k.sample(func(ctx context.Context) *exec.Cmd {
			return p.postern.command(ctx, append([]string{"exec", flag, executorName, "--"}, k.argv()...)...)
		}, p.postern.processorTime)}},
	}
	for _, s := range p.peers(sshDefault, sshGCM) {
		m.contenders = append(m.contenders, contender{name: s.name, peer: true, sample: k.sample(func(ctx context.Context) *exec.Cmd {
			return s.warm(ctx, k.argv()...)
		}, s.processorTime)})
	}
	return m
}
