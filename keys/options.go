package keys

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// option is one option of a line in authorized_clients: a name, and what follows it. For sandbox>=strict the operator is
// ">=" and the value "strict"; an option without a value has neither.
type option struct {
	name, operator, value string
}

// clientOption describes an option that a line in authorized_clients may carry: it checks the option and applies it to the
// client of that line.
type clientOption func(client *AuthorizedClient, opt option) error

// clientOptions is the table of known options. An option that is not in the table refuses the whole file: those to come may
// narrow what a client may do, and to pass over one would widen it.
var clientOptions = map[string]clientOption{
	"as":   setAs,
	"view": wantAll(func(client *AuthorizedClient) { client.ViewAll = true }),
	"control": wantAll(func(client *AuthorizedClient) {
		client.ControlAll, client.ViewAll = true, true // nobody can act on what they cannot find
	}),
	"sandbox":   setSandbox,
	"network":   setNetwork,
	"expires":   setExpires,
	"max-time":  setMaxTime,
	"max-execs": setMaxExecs,
	"command":   setCommand,
	"restrict":  bare(func(*AuthorizedClient) {}), // applyOptions begins with it, wherever it stands
	"pty":       bare(func(client *AuthorizedClient) { client.Rights.Terminal = true }),
}

// foreignOptions are those of OpenSSH that stand alone and narrow a line. Here they mean nothing, so whoever writes one after a
// key expects a limit that is not there.
var foreignOptions = map[string]bool{
	"agent-forwarding": true, "port-forwarding": true, "x11-forwarding": true, "user-rc": true, "touch-required": true,
	"verify-required": true, "cert-authority": true,
}

// setAs is as=NAME. A name that looks like a key would pass for the principal of that key.
func setAs(client *AuthorizedClient, opt option) error {
	if opt.operator != "=" {
		return errors.New("want as=NAME, the same NAME on all lines that act as one")
	}
	if err := checkName(opt.value); err != nil {
		return err
	}
	if strings.HasPrefix(opt.value, string(Client)+"_") {
		return fmt.Errorf("name that starts with %s_, as keys do: choose another", Client)
	}
	client.As = opt.value
	return nil
}

// wantAll is an option whose only value is "all".
func wantAll(set func(*AuthorizedClient)) clientOption {
	return func(client *AuthorizedClient, opt option) error {
		if opt.operator != "=" || opt.value != "all" {
			return fmt.Errorf("want %s=all, or nothing for the client's own commands", opt.name)
		}
		set(client)
		return nil
	}
}

// applyOptions applies the options of one line. Their order means nothing.
func applyOptions(client *AuthorizedClient, options []option) error {
	client.Rights = AllRights()
	if slices.ContainsFunc(options, func(opt option) bool { return opt.name == "restrict" }) {
		client.Rights = restricted()
	}
	seen := make(map[string]bool, len(options))
	for _, opt := range options {
		apply, known := clientOptions[opt.name]
		if !known {
			return fmt.Errorf("unknown option %q: nothing in this file is in force until it is removed", opt.name)
		}
		if seen[opt.name] && opt.name != "command" {
			return fmt.Errorf("option %q is given twice", opt.name)
		}
		seen[opt.name] = true
		if err := apply(client, opt); err != nil {
			return fmt.Errorf("option %q: %w", opt.name, err)
		}
	}
	return checkTogether(seen)
}

// checkComment refuses a name after the key that is, or may have been meant to be, an option: there it would be only a name, and
// the line would allow what its writer thinks it does not. Too much is refused rather than too little; its errors repeat
// nothing but names of options, since a mistyped line may hold a secret.
func checkComment(comment string) error {
	if i := strings.IndexAny(comment, `=<>"`); i >= 0 {
		return fmt.Errorf("character %q stands after the key, where there is only a name: options stand before the key, and a name has none of = < > \"", comment[i])
	}
	separates := func(r rune) bool { return strings.ContainsRune(" \t,;", r) }
	for word := range strings.FieldsFuncSeq(comment, separates) {
		name := strings.ToLower(word)
		positive := strings.TrimPrefix(name, "no-")
		if clientOptions[positive] != nil || foreignOptions[positive] {
			return fmt.Errorf("option %q stands after the key, where it is only a name: options stand before the key", name)
		}
	}
	return nil
}

// startsWithKey reports whether the first field of a line is meant to be a key rather than options.
func startsWithKey(line string) bool {
	for _, kind := range []Kind{Relay, Executor, Client} {
		if strings.HasPrefix(line, string(kind)+"_") || strings.HasPrefix(line, string(kind)+secretSuffix+"_") {
			return true
		}
	}
	return false
}

// cutOptions splits a line that starts with options into these and the rest. Options are separated by commas and end at the
// first space outside quotes. A value may be quoted as in OpenSSH: between double quotes everything stands for itself, except
// that \" is a quote and \\ a backslash.
func cutOptions(line string) (options []option, rest string, err error) {
	for {
		var opt option
		opt, line, err = cutOption(line)
		if err != nil {
			return nil, "", err
		}
		options = append(options, opt)
		switch {
		case line == "":
			return options, "", nil
		case line[0] == ',':
			line = line[1:]
		default: // a space or a tab: cutOption stops at nothing else
			return options, strings.TrimLeft(line, " \t"), nil
		}
	}
}

// maxOptionName is longer than any option and shorter than a key, so that an error cannot repeat a key without its prefix.
const maxOptionName = 24

// cutOption reads one option; the rest is empty or starts with a comma or space. Its errors repeat nothing of the line, since
// a mistyped line may hold a secret.
func cutOption(line string) (opt option, rest string, err error) {
	opt.name, line = cutWhile(line, func(c byte) bool { return isLower(c) || isDigit(c) || c == '-' })
	if opt.name == "" || len(opt.name) > maxOptionName {
		return option{}, "", errors.New("neither a key nor an option comes first: want [OPTIONS] client_... [NAME]")
	}
	opt.operator, line = cutWhile(line, func(c byte) bool { return strings.IndexByte("<>=", c) >= 0 })
	switch opt.operator {
	case "":
		if line != "" && strings.IndexByte(", \t", line[0]) < 0 {
			return option{}, "", errors.New("neither a key nor an option comes first: want [OPTIONS] client_... [NAME]")
		}
		return opt, line, nil
	case "=", ">=", "<=":
	default:
		return option{}, "", fmt.Errorf("option %q has an unknown operator: want =, >= or <=", opt.name)
	}
	opt.value, rest, err = cutValue(line)
	if err != nil {
		return option{}, "", fmt.Errorf("option %q: %w", opt.name, err)
	}
	return opt, rest, nil
}

// cutValue reads a value, quoted or not.
func cutValue(line string) (value, rest string, err error) {
	if !strings.HasPrefix(line, `"`) {
		value, rest = cutWhile(line, func(c byte) bool { return strings.IndexByte(", \t\"", c) < 0 })
		if value == "" {
			return "", "", errors.New(`no value after the operator: quote an empty one as ""`)
		}
		if strings.HasPrefix(rest, `"`) {
			return "", "", errors.New("quote inside a value that does not start with one")
		}
		return value, rest, nil
	}
	var text strings.Builder
	for i := 1; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && i+1 < len(line) && (line[i+1] == '"' || line[i+1] == '\\'):
			i++
			text.WriteByte(line[i])
		case c == '"':
			rest = line[i+1:]
			if rest != "" && strings.IndexByte(", \t", rest[0]) < 0 {
				return "", "", errors.New("text after the closing quote")
			}
			return text.String(), rest, nil
		default:
			text.WriteByte(c)
		}
	}
	return "", "", errors.New("quote is not closed")
}

// cutWhile splits s before the first byte that does not belong.
func cutWhile(s string, belongs func(byte) bool) (head, rest string) {
	i := 0
	for i < len(s) && belongs(s[i]) {
		i++
	}
	return s[:i], s[i:]
}
