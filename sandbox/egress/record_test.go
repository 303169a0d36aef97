package egress

import (
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

func TestRecordKeepsTheFirstRefusalsAndCountsAll(t *testing.T) {
	r := NewRecord(2)
	var adding sync.WaitGroup
	for range 10 {
		adding.Go(func() { r.Add(Decision{Host: "a", Reason: NoRule}) })
	}
	adding.Wait()
	for i := range 100 {
		r.Add(Decision{Host: fmt.Sprint(i), Reason: NoRule})
		r.Add(Decision{Host: "ok", Allowed: true, Reason: DialFailed})
	}
	kept, total := r.Refused()
	if total != 110 || len(kept) != 2 || kept[0] != (Refusal{Decision{Host: "a", Reason: NoRule}, 10}) || kept[1].Host != "0" || kept[1].Times != 1 {
		t.Errorf("%d: %+v", total, kept)
	}
	kept[0].Times = 0 // a copy
	if kept, _ := r.Refused(); kept[0].Times != 10 {
		t.Error("the record gave away its own memory")
	}
	var zero Record
	zero.Add(Decision{})
	if kept, total := zero.Refused(); total != 1 || len(kept) != 0 {
		t.Errorf("zero record: %d, %v", total, kept)
	}
}

func TestEveryReasonAndProtocolHasItsOwnText(t *testing.T) {
	seen := make(map[string]bool)
	for r := range Malformed + 1 {
		seen["reason "+r.String()] = true
	}
	for p := range SOCKS5 + 1 {
		seen["protocol "+p.String()] = true
	}
	if len(seen) != int(Malformed)+1+int(SOCKS5)+1 || (Malformed+1).String() != "none" {
		t.Errorf("%v", seen)
	}
}

func TestEveryReasonHasAnAnswer(t *testing.T) {
	p, err := New(Options{Rules: mustRules(t, "a.example")})
	if err != nil {
		t.Fatal(err)
	}
	for r := range Malformed + 1 {
		a := p.explain(Decision{Host: "b.example", Port: 443, Reason: r}, nil)
		policy := r == NoRule || r == PortNotAllowed || r == NotAName || r == PrivateAddress
		if (a.status == 403) != policy || strings.HasPrefix(a.line, "blocked by the sandbox policy") != policy || (a.socks == socksNotAllowed) != policy {
			t.Errorf("%v: %+v", r, a)
		}
		if a.status < 400 || a.token == "" || a.socks == socksGranted || strings.Trim(a.line, "\r\n") != a.line {
			t.Errorf("%v: %+v", r, a)
		}
	}
}

func TestEnvironNamesTheProxyInBothCases(t *testing.T) {
	for addr, url := range map[string]string{"127.0.0.1:3128": "http://127.0.0.1:3128", "[::1]:3128": "http://[::1]:3128"} {
		vars := make(map[string]string)
		for _, line := range Environ(netip.MustParseAddrPort(addr)) {
			key, value, ok := strings.Cut(line, "=")
			if _, twice := vars[key]; twice || !ok {
				t.Errorf("%q", line)
			}
			vars[key] = value
		}
		for _, key := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
			if vars[key] != url || vars[strings.ToLower(key)] != url {
				t.Errorf("%s = %q, %q, want %q", key, vars[key], vars[strings.ToLower(key)], url)
			}
		}
		if no := vars["NO_PROXY"]; no != vars["no_proxy"] || no != "localhost,127.0.0.1,::1" {
			t.Errorf("NO_PROXY = %q", no)
		}
		if _, bad := vars["YARN_NO_PROXY"]; bad {
			t.Error("yarn refuses to start with YARN_NO_PROXY")
		}
	}
}
