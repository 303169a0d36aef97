package main

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/cobra"
)

// logFlags are --log-level and --log-format of the daemons.
type logFlags struct {
	level, format string
	current       slog.LevelVar
}

func (f *logFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	cmd.Flags().StringVar(&f.format, "log-format", "text", "text or json")
}

func (f *logFlags) logger(w io.Writer) (*slog.Logger, error) {
	if err := f.setLevel(f.level); err != nil {
		return nil, err
	}
	o := &slog.HandlerOptions{Level: &f.current}
	switch f.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, o)), nil
	}
	return nil, fmt.Errorf("--log-format %q: want text or json", f.format)
}

// setLevel may be called while the logger is in use.
func (f *logFlags) setLevel(text string) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(text)); err != nil {
		return fmt.Errorf("--log-level %q: want debug, info, warn or error", text)
	}
	f.current.Set(level)
	return nil
}

// quietUpstream keeps from the standard logger what package net/http says of a server that sends more than its answer: bytes of
// that server's choice, which a command has asked for.
type quietUpstream struct{ w io.Writer }

func (q quietUpstream) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("Unsolicited response received on idle HTTP channel")) {
		return len(p), nil
	}
	return q.w.Write(p)
}
