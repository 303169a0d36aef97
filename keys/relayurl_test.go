package keys

import (
	"strings"
	"testing"
)

func TestRelayURLRoundTrips(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Relay, 5)
	for text, want := range map[string]struct{ host, address string }{
		"relay.example.com:4433":        {"relay.example.com", "relay.example.com:4433"},
		"Relay.EXAMPLE.com:4433":        {"relay.example.com", "relay.example.com:4433"},
		"relay.example.com.:1":          {"relay.example.com.", "relay.example.com.:1"},
		"localhost:65535":               {"localhost", "localhost:65535"},
		"my_relay:4433":                 {"my_relay", "my_relay:4433"},
		"3f2a9c:4433":                   {"3f2a9c", "3f2a9c:4433"},
		"127.0.0.1:4433":                {"127.0.0.1", "127.0.0.1:4433"},
		"[::1]:4433":                    {"::1", "[::1]:4433"},
		"[2001:DB8:0:0:0:0:0:1]:4433":   {"2001:db8::1", "[2001:db8::1]:4433"},
		"[2001:db8::1]:443":             {"2001:db8::1", "[2001:db8::1]:443"},
		"xn--bcher-kva.example.com:443": {"xn--bcher-kva.example.com", "xn--bcher-kva.example.com:443"},
	} {
		url, err := ParseRelayURL("postern://" + text + "#" + key.String())
		if err != nil || url.Host != want.host || url.Address() != want.address || url.Key != key {
			t.Errorf("ParseRelayURL(%q) = %+v, %v, want host %q and address %q", text, url, err, want.host, want.address)
		}
		again, err := ParseRelayURL(url.String())
		if err != nil || again != url {
			t.Errorf("ParseRelayURL(%q) = %v, %v, want %v", url, again, err, url)
		}
		encoded, err := url.MarshalText()
		var decoded RelayURL
		if err != nil || decoded.UnmarshalText(encoded) != nil || decoded != url {
			t.Errorf("%v through text = %v, %v", url, decoded, err)
		}
	}
}

func TestRelayURLWithAnyOtherShapeIsRefused(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Relay, 5).String()
	for _, text := range []string{
		"", "postern://", key, "postern:" + key, "#" + key,
		"postern://h:1", "postern://h:1#", "postern://h#" + key, "postern://h:#" + key, "postern://:1#" + key,
		"POSTERN://h:1#" + key, "https://h:1#" + key, " postern://h:1#" + key, "postern://h:1#" + key + " ",
		"postern://h:0#" + key, "postern://h:65536#" + key, "postern://h:01#" + key, "postern://h:+1#" + key, "postern://h:x#" + key,
		"postern://u@h:1#" + key, "postern://u:p@h:1#" + key, "postern://h:1/#" + key, "postern://h:1/x#" + key, "postern://h:1?x#" + key,
		"postern://::1:1#" + key, "postern://[::1]#" + key, "postern://[::1:1#" + key, "postern://[fe80::1%25eth0]:1#" + key,
		"postern://[fe80::1%eth0]:1#" + key, "postern://[127.0.0.1]:1#" + key, "postern://[h]:1#" + key,
		"postern://1.2.3:1#" + key, "postern://1.2.3.256:1#" + key, "postern://127.1:1#" + key, "postern://0x7f000001:1#" + key,
		"postern://h..x:1#" + key, "postern://.h:1#" + key, "postern://-h:1#" + key, "postern://h-:1#" + key, "postern://h x:1#" + key,
		"postern://h\n:1#" + key, "postern://b\u00fccher:1#" + key, "postern://\u212aelvin:1#" + key, "postern://h%20:1#" + key,
		"postern://" + strings.Repeat("a", 64) + ":1#" + key, "postern://" + strings.Repeat("a.", 127) + "a:1#" + key,
		"postern://h:1#" + key + "#" + key, "postern://h:1#" + strings.ToUpper(key), "postern://h:1#relay_" + key[6:20],
		"postern://h:1#" + fixedKey(t, Client, 5).String(), "postern://h:1#" + fixedKey(t, Executor, 5).String(),
		"postern://h:1#" + generate(t, Relay).Secret(),
		"postern://" + strings.Repeat("a", 1<<20) + ":1#" + key,
	} {
		if url, err := ParseRelayURL(text); err == nil {
			t.Errorf("ParseRelayURL(%.120q) = %v, want an error", text, url)
		}
	}
	if text := (RelayURL{}).String() + (RelayURL{}).Address(); text != "" {
		t.Errorf("the zero RelayURL prints as %q, want nothing", text)
	}
	for _, url := range []RelayURL{{}, {Host: "h", Key: fixedKey(t, Relay, 1)}, {Host: "a b", Port: 1, Key: fixedKey(t, Relay, 1)}, {Host: "h", Port: 1}} {
		if text, err := url.MarshalText(); err == nil {
			t.Errorf("MarshalText of %+v = %s, want an error", url, text)
		}
	}
}
