package executor

import (
	"crypto/sha256"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/postern-relay/postern/wire"
)

// execution is one command from its start to its end, and what is kept of it afterwards. It
// belongs to the table, and outlives every handle, session and connection.
//
// Goroutines: one per output pipe, one for stdin, and supervise, which waits for all of them.
type execution struct {
	info      wire.ExecInfo // what changes is filled in by describe
	starter   string        // the client key
	hash      [sha256.Size]byte
	killAfter time.Duration
	run       Running
	log       *outputLog
	input     *inputQueue   // nil without stdin
	exited    chan struct{} // the main process has ended
	exitedAt  time.Time     // when; set before
	done      chan struct{} // Exit is in the log

	mu         sync.Mutex
	controller *LocalProcess              // nil: detached
	handles    map[*LocalProcess]struct{} // the controller and the viewers
	generation uint64
	claims     map[wire.ID]uint64 // highest attempt of each client instance
	requests   requests
	printed    uint64        // bytes of output, counted where there is a limit
	hit        wire.LimitSet // limits of the executor's own keeping
	cause      wire.Cause    // why postern ended it; zero: it did not
	grace      *time.Timer   // runs while detached
	limit      *time.Timer
	kill       *time.Timer
	endedAt    time.Time
}

// begin takes over a running process.
func (x *execution) begin(run Running, timeout time.Duration) {
	x.run = run
	if w := run.Stdin(); w != nil {
		x.input = newInputQueue(wire.InputQueue)
		go x.input.pump(w, x.info.TTY)
	}
	if timeout > 0 {
		x.limit = time.AfterFunc(timeout, func() { x.terminate(wire.CauseTimedOut, 0) })
	}
	go x.supervise()
}

func (x *execution) supervise() {
	var readers sync.WaitGroup
	held := make([]bool, len(x.run.Outputs()))
	for i, p := range x.run.Outputs() {
		readers.Go(func() { held[i] = x.readPipe(p) })
	}
	ended := x.run.Wait()
	x.exitedAt = time.Now()
	close(x.exited)
	for _, p := range x.run.Outputs() {
		p.Pipe.SetReadDeadline(time.Now().Add(wire.DrainDeadline))
	}
	if x.input != nil {
		x.input.shut()
	}
	x.mu.Lock()
	if x.controller == nil {
		x.log.setFree(true) // nobody may ever come back to acknowledge
	}
	x.mu.Unlock()
	readers.Wait()
	x.finish(ended, held)
}

// finish puts Exit into the log, after the last byte.
func (x *execution) finish(ended Ended, held []bool) {
	x.mu.Lock()
	status := wire.ExitStatus{Code: ended.Code, Signal: ended.Signal, Cause: x.cause, Strays: uint32(max(0, ended.Strays)), Hit: ended.Hit | x.hit}
	for _, h := range held {
		status.PipesHeld = status.PipesHeld || h
	}
	switch {
	case ended.OOM:
		status.Cause = wire.CauseOOM
	case x.cause != 0:
	case ended.Signal != "":
		status.Cause = wire.CauseSignalled
	default:
		status.Cause = wire.CauseExited
	}
	for _, t := range []*time.Timer{x.grace, x.limit, x.kill} {
		if t != nil {
			t.Stop()
		}
	}
	x.endedAt = time.Now()
	x.log.end(status)
	close(x.done)
	x.mu.Unlock()
}

// readPipe copies one pipe into the log until its end. After the main process has ended, it
// spends at most DrainDeadline waiting for more; time in which the log had no room does not
// count, so that a slow reader loses nothing. It reports whether something still held
// the pipe open.
func (x *execution) readPipe(p OutputPipe) (held bool) {
	defer p.Pipe.Close()
	left := wire.DrainDeadline
	buf := make([]byte, wire.MaxChunk)
	for {
		begin := time.Now()
		if isClosed(x.exited) {
			p.Pipe.SetReadDeadline(begin.Add(left))
		}
		n, err := p.Pipe.Read(buf)
		after := isClosed(x.exited)
		if after {
			if begin.Before(x.exitedAt) { // the process has ended during this Read
				begin = x.exitedAt
			}
			left -= time.Since(begin)
		}
		n = x.allowOutput(n)
		if n > len(buf)/4 {
			x.log.append(p.Stream, buf[:n:n])
			buf = make([]byte, wire.MaxChunk)
		} else if n > 0 {
			x.log.append(p.Stream, append([]byte(nil), buf[:n]...))
		}
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return true
		case err != nil:
			return false // the end; for a terminal EIO means that nobody has it open
		case after && left <= 0:
			return true
		}
	}
}

// allowOutput counts n more bytes of output, and says how many of them are within the limit.
// Past it the command is ended, and what it still had to say is dropped; Exit tells.
func (x *execution) allowOutput(n int) int {
	limit := x.info.Limits.Output
	if limit == 0 || n == 0 {
		return n
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	left := limit - x.printed
	if uint64(n) <= left {
		x.printed += uint64(n)
		return n
	}
	x.printed = limit
	if x.hit |= wire.LimitOutput; x.cause == 0 {
		x.cause = wire.CauseLimit
	}
	x.run.Kill()
	return int(left)
}

// terminate ends the command: TERM to everything, KILL after the grace. The first cause
// counts. It does nothing once the main process has ended.
func (x *execution) terminate(cause wire.Cause, grace time.Duration) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if isClosed(x.exited) {
		return errEnded
	}
	if grace <= 0 {
		grace = x.killAfter
	}
	if x.cause == 0 {
		x.cause = cause
	}
	err := x.run.SignalAll("TERM")
	if x.kill == nil {
		x.kill = time.AfterFunc(grace, func() { x.run.Kill() })
	} else {
		x.kill.Reset(min(grace, x.killAfter))
	}
	return err
}

// act does something to the command while it runs.
func (x *execution) act(do func() error) error {
	if isClosed(x.exited) {
		return errEnded
	}
	err := do()
	if err != nil && isClosed(x.exited) {
		return errEnded
	}
	return err
}

func (x *execution) signal(s wire.Signal) error {
	if s.Number() == 0 {
		return wire.Errorf(wire.CodeBadRequest, "unknown signal %q", string(s))
	}
	return x.act(func() error { return x.run.Signal(s) })
}

var errEnded = &wire.Error{Code: wire.CodeEnded, Text: "the command has ended"}

// claim makes p the controller; the one before is told. An attempt below one that the
// same client instance made later was held back on the way, and gets nothing.
func (x *execution) claim(p *LocalProcess, instance wire.ID, attempt uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if attempt < x.claims[instance] {
		return wire.Errorf(wire.CodeSuperseded, "a later attempt of the same client has the exec")
	}
	if x.claims == nil || len(x.claims) >= 1024 { // forgetting only allows an old attempt to win
		x.claims = make(map[wire.ID]uint64)
	}
	x.claims[instance] = attempt
	if x.controller != nil {
		x.controller.supersede()
	}
	x.generation++
	p.generation = x.generation
	x.controller = p
	if x.grace != nil {
		x.grace.Stop()
	}
	x.log.setFree(false)
	return nil
}

// release detaches p. The grace begins.
func (x *execution) release(p *LocalProcess) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.handles, p)
	if x.controller != p {
		return
	}
	x.controller = nil
	if isClosed(x.done) {
		return
	}
	if isClosed(x.exited) {
		x.log.setFree(true)
		return
	}
	if x.info.Detach {
		x.log.setFree(x.info.OnFull == wire.OnFullDrop)
		return
	}
	expire := func() {
		x.terminate(wire.CauseTerminated, 0)
		x.mu.Lock()
		defer x.mu.Unlock()
		if x.controller == nil {
			x.log.setFree(true) // or a command blocked on its output could not even trap TERM
		}
	}
	if x.info.Grace <= 0 {
		go expire()
		return
	}
	x.grace = time.AfterFunc(x.info.Grace, expire)
}

func (x *execution) describe() wire.ExecInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	info := x.info
	info.Attached = x.controller != nil
	info.Exit, info.Ended = x.log.exitStatus(), x.endedAt
	info.Last = x.log.lastSeq()
	if x.input != nil {
		info.Input = x.input.taken()
	}
	return info
}

// forget ends every handle: what they read is gone.
func (x *execution) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := range x.handles {
		p.end(errSwept)
	}
}

// commandText is argv for people: one line, shortened.
func commandText(argv []string) string {
	var b strings.Builder
	for i, word := range argv {
		if b.Len() > maxCommandText {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		if word == "" || strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || strings.ContainsRune(`"'\\$&;|<>()*?`, r) }) || !utf8.ValidString(word) {
			word = strconv.Quote(word[:min(len(word), maxCommandText)])
		}
		b.WriteString(word[:min(len(word), maxCommandText)])
	}
	s := b.String()
	if len(s) > maxCommandText {
		s = strings.ToValidUTF8(s[:maxCommandText], "") + "..."
	}
	return s
}

const maxCommandText = 200

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
