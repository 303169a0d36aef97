package egress

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxHost is the longest host name in text form, without the final dot (RFC 1035
// section 2.3.4: 255 octets with the length of each label and that of the root).
const maxHost = 253

// canonicalHost gives the form in which names are compared: lower case, no final dot.
// Only host names of RFC 1123 section 2.1 pass: labels of 1 to 63 letters, digits and
// hyphens, none first or last. A name whose last label is a number is an IPv4 address to
// some resolver or other (decimal, octal, hexadecimal, 127.1), and is not a name here.
func canonicalHost(s string) (string, bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxHost {
		return "", false
	}
	label := 0 // its length so far
	for i := range len(s) {
		switch c := s[i]; {
		case c == '.':
			if label == 0 || s[i-1] == '-' {
				return "", false
			}
			label = 0
			continue
		case c == '-':
			if label == 0 {
				return "", false
			}
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		default:
			return "", false
		}
		if label++; label > 63 {
			return "", false
		}
	}
	if label == 0 || s[len(s)-1] == '-' {
		return "", false
	}
	s = strings.ToLower(s)
	if isNumber(s[strings.LastIndexByte(s, '.')+1:]) {
		return "", false
	}
	return s, true
}

// isNumber tells whether a lower-case label is what URL parsers take for part of an IPv4
// address: digits, or 0x and hexadecimal digits, if any.
func isNumber(label string) bool {
	if hex, ok := strings.CutPrefix(label, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(label, "0123456789") == ""
}

// parsePort reads a port from 1 to 65535, in decimal without sign or leading zero.
func parsePort(s string) (uint16, bool) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err == nil
}

// parseAuthority reads HOST:PORT, or HOST if there is a default port. The host that it
// returns is canonical; if the reason is not zero, it is what may be shown of the text.
func parseAuthority(s string, defaultPort uint16) (host string, port uint16, reason Reason) {
	if len(s) > maxHost+len(".:65535") || strings.Contains(s, "@") { // a user name is none of ours
		return "", 0, NotAName
	}
	if strings.HasPrefix(s, "[") { // an IPv6 address, RFC 3986 section 3.2.2
		if end := strings.LastIndex(s, "]:"); end > 0 {
			port, _ = parsePort(s[end+2:])
			s = s[:end+1]
		}
		return showable(s), port, NotAName
	}
	host, digits, found := strings.Cut(s, ":")
	if port = defaultPort; found {
		var ok bool
		if port, ok = parsePort(digits); !ok {
			if strings.Contains(digits, ":") {
				return showable(s), 0, NotAName // an IPv6 address without brackets
			}
			return showable(host), 0, Malformed
		}
	}
	canonical, ok := canonicalHost(host)
	switch {
	case !ok:
		return showable(host), port, NotAName
	case port == 0:
		return canonical, 0, Malformed
	}
	return canonical, port, 0
}

// showable gives back what is a name or an address as to its characters. Everything else
// becomes empty: it may hold passwords, or characters that a terminal obeys.
func showable(s string) string {
	if addr, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return addr.WithZone("").String()
	}
	if len(s) > maxHost+1 || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return ""
	}
	return strings.ToLower(s)
}
