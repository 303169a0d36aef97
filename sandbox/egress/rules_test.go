package egress

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestEmptyListAllowsNothing(t *testing.T) {
	for _, r := range []Rules{{}, mustRules(t, "")} {
		if !r.Empty() || r.String() != "" || r.Allows("example.com", 443) || r.Allows("", 0) {
			t.Errorf("%#v allows something", r)
		}
	}
}

func TestRulesNameHostsAndPorts(t *testing.T) {
	r := mustRules(t, "Example.COM.,git.example.com:22,b.example:8443,b.example:80")
	if got, want := r.String(), "b.example:80,b.example:8443,example.com,git.example.com:22"; got != want {
		t.Errorf("String = %q, want %q", got, want)
	}
	for _, tt := range []struct {
		host string
		port uint16
		want bool
	}{
		{"example.com", 443, true},
		{"example.com", 80, true},
		{"EXAMPLE.com.", 443, true},
		{"example.com", 22, false},
		{"git.example.com", 22, true},
		{"git.example.com", 443, false},
		{"sub.example.com", 443, false},
		{"com", 443, false},
		{"example.com.evil", 443, false},
		{"example.com..", 443, false},
		{"b.example", 443, false},
		{"", 443, false},
		{"example.com", 0, false},
	} {
		if got := r.Allows(tt.host, tt.port); got != tt.want {
			t.Errorf("Allows(%q, %d) = %v, want %v", tt.host, tt.port, got, tt.want)
		}
	}
}

// notNames are what somebody may try instead of a host name.
var notNames = []string{
	"", ".", "..", "*", "*.example.com", " example.com", "example.com ", "exa mple.com", "\texample.com",
	"example.com\n", "example.com\x00", "example.com\x00.evil", "user@example.com", "user:pw@example.com",
	"example.com@evil.example", "evil.example#example.com", "evil.example/example.com", "evil.example?example.com",
	"evil.example\\example.com", "example%2ecom", "%65xample.com", "example。com", "exämple.com", "ｅxample.com",
	"example\u200b.com", "example_x.com", "-example.com", "example-.com", "example.-com", "example.com-", "a..b", ".a",
	"127.0.0.1", "127.1", "127.0.0.1.", "2130706433", "0x7f000001", "0x7f.1", "0X7F.0.0.1", "0177.0.0.1", "017700000001",
	"1.2.3.4.5", "example.1", "example.0x", "example.0xa", "::1", "[::1]", "fe80::1%eth0", "[fe80::1%25eth0]", "::ffff:127.0.0.1",
	"[::ffff:7f00:1]", strings.Repeat("a", 64) + ".com", strings.Repeat("a.", 127) + "com", "example.com:", "example.com:443:443",
}

func TestWhatIsNotAHostNameIsNoRuleAndNotAllowed(t *testing.T) {
	r := mustRules(t, "example.com,evil.example")
	for _, s := range notNames {
		if r.Allows(s, 443) {
			t.Errorf("Allows(%q) = true", s)
		}
		if s == "" {
			continue // the empty list
		}
		if got, err := ParseRules(s); err == nil {
			t.Errorf("ParseRules(%q) = %q, want an error", s, got)
		} else if strings.ContainsAny(err.Error(), "\n\x00") {
			t.Errorf("ParseRules(%q): error has more than one line: %q", s, err)
		}
	}
}

func TestWrongRulesAreErrors(t *testing.T) {
	for _, s := range []string{
		",", "a.example,", ",a.example", "a.example,,b.example", "a.example, b.example", "a.example:0", "a.example:65536",
		"a.example:080", "a.example:+80", "a.example:-1", "a.example:8_0", "a.example:http", "a.example:", ":80",
		"https://a.example", "a.example/x", strings.Repeat("a.example,", MaxRules) + "a.example",
	} {
		if got, err := ParseRules(s); err == nil {
			t.Errorf("ParseRules(%.40q) = %q, want an error", s, got)
		}
	}
	if _, err := ParseRules(strings.Repeat("a.example,", MaxRules-1) + "a.example"); err != nil {
		t.Errorf("%d items: %v", MaxRules, err)
	}
	longest := strings.Repeat(strings.Repeat("a", 49)+".", 5) + "abc"
	if _, err := ParseRules(longest + ".:65535"); err != nil {
		t.Errorf("a name of %d octets: %v", len(longest), err)
	}
}

func TestEncodedInternationalNamesAreNames(t *testing.T) {
	if !mustRules(t, "xn--exmple-cua.com").Allows("XN--exmple-cua.com", 443) {
		t.Error("xn-- form is refused")
	}
}

// genRules makes rules over few hosts and ports, so that they meet.
var genRules = rapid.Custom(func(t *rapid.T) Rules {
	items := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
		host := rapid.SampledFrom([]string{"a.example", "B.example", "c.example.", "d"}).Draw(t, "host")
		return host + rapid.SampledFrom([]string{"", ":80", ":443", ":22", ":8443"}).Draw(t, "port")
	}), 0, 12).Draw(t, "items")
	r, err := ParseRules(strings.Join(items, ","))
	if err != nil {
		t.Fatal(err)
	}
	return r
})

func TestStringParsesBackToTheSameRules(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := genRules.Draw(t, "rules")
		again, err := ParseRules(r.String())
		if err != nil || again.String() != r.String() || !again.Within(r) || !r.Within(again) {
			t.Fatalf("ParseRules(%q) = %q, %v", r, again, err)
		}
	})
}

func TestMeetIsNeverWiderThanEither(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genRules.Draw(t, "a"), genRules.Draw(t, "b")
		meet := a.Meet(b)
		if !meet.Within(a) || !meet.Within(b) {
			t.Fatalf("Meet(%q, %q) = %q", a, b, meet)
		}
		if meet.String() != b.Meet(a).String() {
			t.Fatalf("Meet is not the same both ways")
		}
		if a.Within(b) != (meet.String() == a.String()) {
			t.Fatalf("Within(%q, %q) = %v, meet %q", a, b, a.Within(b), meet)
		}
		within := true
		for _, host := range []string{"a.example", "b.example", "c.example", "d", "e"} {
			for _, port := range []uint16{22, 80, 443, 8443, 1} {
				both := a.Allows(host, port) && b.Allows(host, port)
				if meet.Allows(host, port) != both {
					t.Fatalf("Meet(%q, %q) allows %s:%d: %v", a, b, host, port, !both)
				}
				within = within && (!a.Allows(host, port) || b.Allows(host, port))
			}
		}
		if within != a.Within(b) {
			t.Fatalf("Within(%q, %q) = %v", a, b, !within)
		}
		if _, err := ParseRules(meet.String()); err != nil {
			t.Fatalf("the text of a meet does not parse: %v", err)
		}
	})
}

func TestShownRulesAreBounded(t *testing.T) {
	var items []string
	for i := range MaxRules {
		items = append(items, fmt.Sprintf("h%03d.%s.example", i, strings.Repeat("x", 60)))
	}
	shown := mustRules(t, strings.Join(items, ",")).shown()
	if len(shown) > 2000 || !strings.HasSuffix(shown, " and 244 more") {
		t.Errorf("shown = %q", shown)
	}
}

func FuzzParseRules(f *testing.F) {
	for _, s := range notNames {
		f.Add(s)
	}
	f.Add("a.example,b.example:22,xn--a")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParseRules(s)
		if err != nil {
			if !r.Empty() || strings.ContainsAny(err.Error(), "\r\n\x00\x1b") {
				t.Fatalf("ParseRules(%q) = %q, %q", s, r, err)
			}
			return
		}
		again, err := ParseRules(r.String())
		if err != nil || again.String() != r.String() || !again.Within(r) || !r.Within(again) {
			t.Fatalf("ParseRules(%q) = %q, and back %q, %v", s, r, again, err)
		}
		for _, rule := range r.rules {
			if !r.Allows(rule.host, rule.port) || rule.port == 0 {
				t.Fatalf("%q does not allow %v", r, rule)
			}
		}
	})
}

func FuzzParseAuthority(f *testing.F) {
	for _, s := range notNames {
		f.Add(s+":443", uint16(0))
		f.Add(s, uint16(80))
	}
	f.Add("example.com:443", uint16(0))
	f.Add("[::1]:80", uint16(0))
	f.Fuzz(func(t *testing.T, s string, defaultPort uint16) {
		host, port, reason := parseAuthority(s, defaultPort)
		for i := range len(host) {
			if c := host[i]; c <= ' ' || c >= 0x7f || strings.IndexByte("@/?#%*\\", c) >= 0 {
				t.Fatalf("parseAuthority(%q) shows %q", s, host)
			}
		}
		if reason != 0 {
			if reason != NotAName && reason != Malformed {
				t.Fatalf("parseAuthority(%q) = %v", s, reason)
			}
			return
		}
		canonical, ok := canonicalHost(host)
		if !ok || canonical != host || port == 0 || len(host) > maxHost {
			t.Fatalf("parseAuthority(%q) = %q, %d", s, host, port)
		}
		if !strings.HasPrefix(strings.ToLower(s), host) {
			t.Fatalf("parseAuthority(%q) = %q, which is not its beginning", s, host)
		}
	})
}
