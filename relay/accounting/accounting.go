// Package accounting writes down what circuits have carried: one JSON object a line, for each circuit that has ended, and for each
// Interval of one that goes on, so that a bill or a quota does not have to wait for its end.
//
// It is not for monitoring, which counters do better, and it knows no more of a circuit than the relay does: who, to whom, when,
// how many bytes each way. A reader that adds up the bytes of all lines of a circuit has its total; (relay, start, circuit, seq)
// names a line, so that one which is read twice is found out.
//
// [Log.Write] never waits: whoever carries bytes must not be held up by a disk. What the disk does not take in time is
// dropped and counted, and the next line that is written says how many were lost before it. A file that has grown to its size is
// moved aside, and the oldest ones are removed.
package accounting

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Interval is how often a circuit that goes on is written down.
const Interval = 5 * time.Minute

// Record is one line.
type Record struct {
	Time       time.Time `json:"ts"`
	Relay      string    `json:"relay"` // public key
	Tenant     string    `json:"tenant"`
	Client     string    `json:"client"`   // public key
	Executor   string    `json:"executor"` // public key
	Circuit    uint64    `json:"circuit"`  // unique since the start of the relay
	Seq        uint64    `json:"seq"`      // of the lines of this circuit, from 1
	Start      time.Time `json:"start"`    // of the circuit
	ToExecutor uint64    `json:"bytes_to_executor"`
	ToClient   uint64    `json:"bytes_to_client"` // both since the line before
	End        string    `json:"end,omitempty"`   // why it ended; empty: it goes on
	Lost       uint64    `json:"lost_before,omitempty"`
}

// Options bound the files.
type Options struct {
	// MaxBytes is the size at which a file is moved aside. Zero: 64 MiB.
	MaxBytes int64
	// Keep is how many files there are beside the current one. Zero: 8.
	Keep int
	// Pending is how many records may wait for the disk. Zero: 8192.
	Pending int
	// Written is told of each record whether it was written. Nil: nobody is told.
	Written func(ok bool)
	// Log gets failures of the disk, once until it works again. Nil: nothing.
	Log *slog.Logger
}

// syncEvery bounds what a power failure takes.
const syncEvery = time.Second

// Log is an open accounting file. Write may be called from anywhere; Close it.
type Log struct {
	path string
	o    Options

	queue chan Record
	done  chan struct{}

	mu     sync.Mutex
	closed bool
	lost   uint64

	// Of the writing goroutine:
	file    *os.File
	w       *bufio.Writer
	size    int64
	failing bool
}

// Open opens path for appending, mode 0600, and makes it where it is missing; its folder must exist.
func Open(path string, o Options) (*Log, error) {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 64 << 20
	}
	if o.Keep <= 0 {
		o.Keep = 8
	}
	if o.Pending <= 0 {
		o.Pending = 8192
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Written == nil {
		o.Written = func(bool) {}
	}
	l := &Log{path: path, o: o, queue: make(chan Record, o.Pending), done: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("accounting: %w", err)
	}
	go l.run()
	return l, nil
}

// Write takes a record, or drops it when too many wait. It never waits for the disk.
func (l *Log) Write(r Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	select {
	case l.queue <- r:
	default:
		l.lost++
		l.o.Written(false)
	}
}

// Close writes what waits, and returns when it is on disk. Records that come later are not taken.
func (l *Log) Close() error {
	l.mu.Lock()
	again := l.closed
	if l.closed = true; !again {
		close(l.queue)
	}
	l.mu.Unlock()
	<-l.done
	if again || l.file == nil {
		return nil
	}
	return errors.Join(l.w.Flush(), l.file.Sync(), l.file.Close())
}

func (l *Log) run() {
	defer close(l.done)
	ticker := time.NewTicker(syncEvery)
	defer ticker.Stop()
	dirty := false
	for {
		select {
		case r, ok := <-l.queue:
			if !ok {
				return
			}
			l.write(r)
			dirty = true
		case <-ticker.C:
			if dirty {
				dirty = false
				l.sync()
			}
		}
	}
}

// write writes one line, with what was lost before it.
func (l *Log) write(r Record) {
	l.mu.Lock()
	r.Lost = l.lost
	l.mu.Unlock()
	line, err := json.Marshal(r)
	if err == nil {
		err = l.put(append(line, '\n'))
	}
	l.report(err)
	l.mu.Lock()
	if err != nil {
		l.lost++
	} else {
		l.lost -= r.Lost
	}
	l.mu.Unlock()
	l.o.Written(err == nil)
}

// put appends a line, to a fresh file where the current one is full.
func (l *Log) put(line []byte) error {
	if l.file == nil || l.size > 0 && l.size+int64(len(line)) > l.o.MaxBytes {
		if err := l.rotate(); err != nil {
			return err
		}
	}
	n, err := l.w.Write(line)
	l.size += int64(n)
	if err == nil && l.w.Buffered() > 0 && l.failing {
		err = l.w.Flush() // the disk is known to be in trouble: do not believe the buffer
	}
	if err != nil { // a buffer remembers its error for ever
		l.abandon()
	}
	return err
}

// abandon gives up the current file after an error; the next line opens it again.
func (l *Log) abandon() {
	if l.file != nil {
		_ = l.file.Close() // the first error is the one that is told
	}
	l.file, l.w = nil, nil
}

func (l *Log) sync() {
	if l.file == nil {
		return
	}
	err := l.w.Flush()
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		l.abandon()
		l.report(err)
	}
}

func (l *Log) report(err error) {
	switch {
	case err != nil && !l.failing:
		l.failing = true
		l.o.Log.Error("accounting records are lost", "err", err)
	case err == nil && l.failing:
		l.failing = false
		l.o.Log.Info("accounting records are written again")
	}
}

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil && info.Size() > 0 {
		err = endLine(l.path, f, info.Size())
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	if info, err = f.Stat(); err != nil {
		return errors.Join(err, f.Close())
	}
	l.file, l.w, l.size = f, bufio.NewWriter(f), info.Size()
	return nil
}

// endLine ends a line that a crash has cut, so that it spoils no other.
func endLine(path string, f *os.File, size int64) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	var last [1]byte
	if _, err := r.ReadAt(last[:], size-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = f.Write([]byte{'\n'})
	return err
}

// rotate moves a full file aside: PATH becomes PATH.1, that one PATH.2, and the last one goes.
func (l *Log) rotate() error {
	if l.file == nil {
		return l.open()
	}
	err := errors.Join(l.w.Flush(), l.file.Sync(), l.file.Close())
	l.file, l.w = nil, nil
	if err != nil {
		return err
	}
	if err := os.Remove(l.old(l.o.Keep)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for n := l.o.Keep - 1; n >= 0; n-- {
		if err := os.Rename(l.old(n), l.old(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := syncDir(filepath.Dir(l.path)); err != nil {
		return err
	}
	return l.open()
}

func (l *Log) old(n int) string {
	if n == 0 {
		return l.path
	}
	return fmt.Sprintf("%s.%d", l.path, n)
}

func syncDir(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
