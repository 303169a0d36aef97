package executor

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/postern-relay/postern/executor/execlog"
	"github.com/postern-relay/postern/wire"
)

// execution is one command from its start to its end, and what is kept of it afterwards. It
// belongs to the table, and outlives every handle, session and connection.
//
// Goroutines: one per output pipe, one for stdin, and supervise, which waits for all of them.
type execution struct {
	info      wire.ExecInfo // what changes is filled in by describe
	killAfter time.Duration
	run       Running // nil: ended before this process began
	log       *execlog.Log
	epoch     wire.ID       // of the log, as clients know it
	input     *inputQueue   // nil without stdin
	exited    chan struct{} // the main process has ended
	exitedAt  time.Time     // when; set before
	done      chan struct{} // Exit is in the log
	settled   chan struct{} // what is kept is where it will stay
	unsaved   bool          // or could not be put there while somebody may still come for it
	// ended records the outcome, before anybody can read it.
	ended func(wire.ExitStatus)
	// printedBytes counts output.
	printedBytes func(wire.OutputStream, int)
	tails        [wire.Terminal + 1]tail // of the output, until the end

	loading sync.Once
	load    func() // opens log and epoch of an exec that ended before
	loadErr error

	mu         sync.Mutex
	controller *LocalProcess              // nil: detached
	handles    map[*LocalProcess]struct{} // the controller and the viewers
	generation uint64
	claimer    wire.ID            // the instance that made it
	claims     map[wire.ID]uint64 // highest attempt of each client instance
	requests   requests
	printed    uint64        // bytes of output, counted where there is a limit
	hit        wire.LimitSet // limits of the executor's own keeping
	cause      wire.Cause    // why postern ended it; zero: it did not
	limit      *time.Timer
	kill       *time.Timer
	killAt     time.Time
	endedAt    time.Time
	absence
}

func newExecution(info wire.ExecInfo, run Running) *execution {
	return &execution{
		info: info, run: run, handles: make(map[*LocalProcess]struct{}),
		exited: make(chan struct{}), done: make(chan struct{}), settled: make(chan struct{}),
	}
}

// begin takes over the running process.
func (x *execution) begin(timeout time.Duration) {
	if w := x.run.Stdin(); w != nil {
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
		x.log.SetFree(true) // nobody may ever come back to acknowledge
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
	for _, t := range []*time.Timer{x.timer, x.limit, x.kill} {
		if t != nil {
			t.Stop()
		}
	}
	x.endedAt = time.Now()
	x.mu.Unlock()
	status.Denials = x.denials(status)
	x.ended(status)
	x.log.End(status)
	close(x.done)
}

// denials asks for what was refused. Of a command that was ended from outside its words say nothing.
func (x *execution) denials(status wire.ExitStatus) []wire.Denial {
	var output []byte
	if !status.Success() && (status.Cause == wire.CauseExited || status.Cause == wire.CauseSignalled) {
		output = []byte{'\n'}
		for i := range x.tails {
			output = append(append(output, x.tails[i].bytes()...), '\n')
		}
	}
	x.tails = [len(x.tails)]tail{}
	return x.run.Denials(output)
}

// readBuffers are for commands that print little, which most are.
var readBuffers = sync.Pool{New: func() any { return new([wire.MaxChunk]byte) }}

// readPipe copies one pipe into the log until its end. After the main process has ended, it
// spends at most DrainDeadline waiting for more; time in which the log had no room does not
// count, so that a slow reader loses nothing. What is in the pipe at the end of that time is taken too: the executor may
// have been held up, and not the command. It reports whether something still held the pipe open.
func (x *execution) readPipe(p OutputPipe) (held bool) {
	defer p.Pipe.Close()
	left := wire.DrainDeadline
	buf := readBuffers.Get().(*[wire.MaxChunk]byte)[:]
	defer func() { readBuffers.Put((*[wire.MaxChunk]byte)(buf)) }() // the last one, which the log has not got
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
		buf = x.take(p.Stream, buf, n)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded), err == nil && after && left <= 0:
			for taken := 0; taken <= largestPipe; taken += n {
				if n, err = readNow(p.Pipe, buf); n == 0 {
					return err == nil
				}
				buf = x.take(p.Stream, buf, n)
			}
			return true // it is filled faster than it is read
		case err != nil:
			return false // the end; for a terminal EIO means that nobody has it open
		}
	}
}

// largestPipe is how much a pipe can hold, unless root has made more of it (pipe(7)).
const largestPipe = 1 << 20

// take puts the first n bytes of buf into the log, and returns the buffer to go on with.
func (x *execution) take(stream wire.OutputStream, buf []byte, n int) []byte {
	n = x.allowOutput(n)
	if n == 0 {
		return buf
	}
	x.printedBytes(stream, n)
	x.tails[stream].add(buf[:n])
	if n > len(buf)*3/4 { // else it would hold much more than the log counts
		x.log.Append(stream, buf[:n:n])
		return make([]byte, wire.MaxChunk)
	}
	x.log.Append(stream, append([]byte(nil), buf[:n]...))
	return buf
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
	return x.terminateLocked(cause, grace)
}

func (x *execution) terminateLocked(cause wire.Cause, grace time.Duration) error {
	if isClosed(x.exited) {
		return errEnded
	}
	if grace <= 0 || grace > maxKillAfter {
		grace = x.killAfter
	}
	if x.cause == 0 {
		x.cause = cause
	}
	err := x.run.SignalAll("TERM")
	switch at := time.Now().Add(grace); {
	case x.kill == nil:
		x.kill, x.killAt = time.AfterFunc(grace, func() { x.run.Kill() }), at
	case at.Before(x.killAt): // never later than it was to be
		x.kill.Reset(grace)
		x.killAt = at
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

func (x *execution) describe() wire.ExecInfo {
	x.mu.Lock()
	defer x.mu.Unlock()
	info := x.info
	info.Attached = x.controller != nil
	info.Exit, info.Ended = x.log.ExitStatus(), x.endedAt
	info.Last = x.log.LastSeq()
	if x.input != nil {
		info.Input = x.input.taken()
	}
	return info
}

// idle: it has ended, and no controller is reading what it left. Viewers do not count.
func (x *execution) idle() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.controller == nil && isClosed(x.settled)
}

// forget ends every handle: what they read is gone.
func (x *execution) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for p := range x.handles {
		p.end(errSwept)
	}
	x.loading.Do(func() {}) // whoever has it now gets no log any more
	if x.log != nil {
		x.log.Discard()
	}
}
