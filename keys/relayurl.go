package keys

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

const (
	relayScheme = "postern://"
	// maxRelayURL bounds the work on a foreign string: scheme, the longest DNS name, a port and a key are well below it.
	maxRelayURL = 512
)

// RelayURL says where a relay is and which key it must prove: postern://HOST:PORT#relay_... There is no form without a key,
// so a relay is never trusted on first contact. The zero value is no relay. It is comparable.
type RelayURL struct {
	Host string    // a DNS name in lower case, or an IP address in its usual form, without brackets
	Port uint16    // the UDP port, never 0
	Key  PublicKey // the relay's key
}

// ParseRelayURL reads the text form. It accepts no user, path, query or default port; names are folded to lower case and
// addresses to their shortest form, so that one relay has one spelling.
func ParseRelayURL(text string) (RelayURL, error) {
	if len(text) > maxRelayURL {
		return RelayURL{}, fmt.Errorf("relay URL is longer than %d bytes", maxRelayURL)
	}
	rest, ok := strings.CutPrefix(text, relayScheme)
	if !ok {
		return RelayURL{}, errors.New("relay URL does not start with postern://, as in postern://HOST:PORT#relay_KEY")
	}
	address, keyText, ok := strings.Cut(rest, "#")
	if !ok {
		return RelayURL{}, errors.New("relay URL has no key: want postern://HOST:PORT#relay_KEY, as the relay prints it")
	}
	key, err := ParsePublicKey(keyText)
	if err != nil {
		return RelayURL{}, fmt.Errorf("relay URL: %w", err)
	}
	if key.Kind() != Relay {
		return RelayURL{}, fmt.Errorf("relay URL has %s key after #: want the relay's", key.Kind().noun())
	}
	host, port, err := splitAddress(address)
	if err != nil {
		return RelayURL{}, fmt.Errorf("relay URL: %w", err)
	}
	return RelayURL{Host: host, Port: port, Key: key}, nil
}

// String returns the text form, and "" for the zero value.
func (u RelayURL) String() string {
	if u == (RelayURL{}) {
		return ""
	}
	return relayScheme + u.Address() + "#" + u.Key.String()
}

// Address returns HOST:PORT as a dialler wants it, an IPv6 address in brackets, and "" for the zero value.
func (u RelayURL) Address() string {
	if u == (RelayURL{}) {
		return ""
	}
	host := u.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(u.Port))
}

// MarshalText returns the text form; a value that would not parse again is an error.
func (u RelayURL) MarshalText() ([]byte, error) {
	text := u.String()
	if _, err := ParseRelayURL(text); err != nil {
		return nil, err
	}
	return []byte(text), nil
}

// UnmarshalText is [ParseRelayURL]; on an error u keeps its value.
func (u *RelayURL) UnmarshalText(text []byte) error {
	parsed, err := ParseRelayURL(string(text))
	if err != nil {
		return err
	}
	*u = parsed
	return nil
}

// splitAddress splits and checks HOST:PORT.
func splitAddress(address string) (host string, port uint16, err error) {
	colon := strings.LastIndexByte(address, ':')
	if colon < 0 {
		return "", 0, errors.New("no port: want HOST:PORT")
	}
	portText := address[colon+1:]
	number, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || number == 0 || strconv.FormatUint(number, 10) != portText {
		return "", 0, errors.New("port is not a number from 1 to 65535")
	}
	host, err = canonicalHost(address[:colon])
	return host, uint16(number), err
}

// canonicalHost checks a bracketed IPv6 address, an IPv4 address or a DNS name.
func canonicalHost(host string) (string, error) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, closed := strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		if !closed || err != nil || !addr.Is6() || addr.Zone() != "" {
			return "", errors.New("the host in brackets is not an IPv6 address (zones are not supported)")
		}
		return addr.String(), nil
	}
	if strings.Contains(host, ":") {
		return "", errors.New("write an IPv6 address in brackets: [ADDRESS]:PORT")
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String(), nil
	}
	name := strings.ToLower(host)
	// The length differs when a letter outside ASCII folds into one inside it.
	if len(name) != len(host) || !validDNSName(name) {
		return "", errors.New("host is neither a DNS name nor an IP address")
	}
	return name, nil
}

// validDNSName accepts letters, digits, hyphens and (as container networks use them) underscores in labels of 1 to 63 bytes,
// with one final dot at most. A name that ends in a number would be a mistyped IPv4 address, or a hidden one.
func validDNSName(name string) bool {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	if len(name) > 253 {
		return false
	}
	for _, label := range labels {
		if len(label) < 1 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if !isLower(c) && !isDigit(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	last := labels[len(labels)-1]
	return strings.Trim(last, "0123456789") != "" && !strings.HasPrefix(last, "0x")
}

func isLower(c byte) bool { return 'a' <= c && c <= 'z' }
func isDigit(c byte) bool { return '0' <= c && c <= '9' }
