package keys

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// setSandbox is sandbox<=MODE.
func setSandbox(client *AuthorizedClient, opt option) error {
	mode, known := sandboxCeilings[opt.value]
	if opt.operator != "<=" || !known {
		return errors.New("want sandbox<=read-only, sandbox<=workspace-write or sandbox<=full-access")
	}
	client.Rights.Sandbox, client.Rights.TakeOver = mode, false
	return nil
}

// setNetwork is network<=MODE.
func setNetwork(client *AuthorizedClient, opt option) error {
	mode, known := networkCeilings[opt.value]
	if opt.operator != "<=" || !known {
		return errors.New("want network<=none, network<=allow-list or network<=host")
	}
	client.Rights.Network, client.Rights.TakeOver = mode, false
	return nil
}

// setExpires is expires=TIME.
func setExpires(client *AuthorizedClient, opt option) error {
	const want = "want expires=2026-12-01, when that day begins in UTC, or a time with its zone, as 2026-12-01T18:00:00+01:00"
	if opt.operator != "=" {
		return errors.New(want)
	}
	at, err := time.Parse(time.DateOnly, opt.value)
	if err != nil {
		at, err = time.Parse(time.RFC3339, opt.value)
	}
	if err != nil {
		return errors.New(want)
	}
	if at = at.UTC(); at.Year() < 1970 { // the zero time would be no end at all
		return errors.New("year before 1970: " + want)
	}
	client.Expires = at
	return nil
}

// setMaxTime is max-time=DURATION.
func setMaxTime(client *AuthorizedClient, opt option) error {
	limit, err := time.ParseDuration(opt.value)
	if opt.operator != "=" || err != nil || limit <= 0 {
		return errors.New("want max-time=DURATION above zero, as max-time=90s or max-time=1h30m")
	}
	client.Rights.MaxTime, client.Rights.TakeOver = limit, false
	return nil
}

// mostExecs bounds max-execs.
const mostExecs = 1_000_000

// setMaxExecs is max-execs=N.
func setMaxExecs(client *AuthorizedClient, opt option) error {
	n, err := strconv.Atoi(opt.value)
	if opt.operator != "=" || err != nil || n < 1 || n > mostExecs || strconv.Itoa(n) != opt.value {
		return fmt.Errorf("want max-execs=N with N from 1 to %d", mostExecs)
	}
	client.Rights.MaxExecs = n
	return nil
}

// bare is an option without a value.
func bare(set func(*AuthorizedClient)) clientOption {
	return func(client *AuthorizedClient, opt option) error {
		if opt.operator != "" {
			return fmt.Errorf("want %s alone, without a value", opt.name)
		}
		set(client)
		return nil
	}
}

// checkTogether refuses options that make no sense beside each other.
func checkTogether(given map[string]bool) error {
	if given["pty"] && !given["restrict"] {
		return errors.New(`option "pty": only with restrict, since every other line allows a terminal anyway`)
	}
	for _, narrow := range []string{"restrict", "command", "sandbox", "network"} {
		if given["control"] && given[narrow] {
			return fmt.Errorf("options %q and %q do not go together: control=all could type into commands that are wider than this line", "control", narrow)
		}
	}
	return nil
}
