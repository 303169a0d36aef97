package keys

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzKeyText: a text that parses is the only spelling of its key.
func FuzzKeyText(f *testing.F) {
	for _, bad := range computeVectors().Refused {
		f.Add(bad.Text)
	}
	for _, kind := range allKinds {
		f.Add(fixedKey(f, kind, 1).String())
		f.Add(generate(f, kind).Secret())
	}
	f.Fuzz(func(t *testing.T, text string) {
		if key, err := ParsePublicKey(text); err == nil && (key.IsZero() || key.String() != text) {
			t.Errorf("ParsePublicKey(%q) = %q", text, key)
		}
		if key, err := ParsePrivateKey(text); err == nil && key.Secret() != text {
			t.Errorf("ParsePrivateKey(%q) does not give the text back", text)
		}
	})
}

// FuzzRelayURL: what parses prints as a URL that parses to the same.
func FuzzRelayURL(f *testing.F) {
	key := fixedKey(f, Relay, 1).String()
	for _, address := range []string{"h:1", "Relay.example.com.:4433", "127.0.0.1:65535", "[2001:DB8::1]:443", "[::ffff:1.2.3.4]:1", "a..b:1", "u@h:1/x?y"} {
		f.Add("postern://" + address + "#" + key)
	}
	f.Add("postern://h:1")
	f.Fuzz(func(t *testing.T, text string) {
		url, err := ParseRelayURL(text)
		if err != nil {
			return
		}
		again, err := ParseRelayURL(url.String())
		if err != nil || again != url || url.Port == 0 || url.Key.Kind() != Relay {
			t.Errorf("ParseRelayURL(%q) = %v, which parses to %v, %v", text, url, again, err)
		}
	})
}

// FuzzAuthorizedClients: nobody is let in whose key is not in the text, and each line written anew means the same.
func FuzzAuthorizedClients(f *testing.F) {
	key, other := fixedKey(f, Client, 1).String(), fixedKey(f, Client, 2).String()
	for _, text := range []string{
		"", "# none\n", key, key + " alice\r\n\n\t" + other + "\tbob b", key + "\n" + key, "restrict " + key,
		`cmd="git push, \"now\"",max-time=10m ` + key + " ci", "sandbox>=strict," + key, fixedKey(f, Executor, 1).String(), key + "\x00", `a="`,
		"as=ci " + key + " a\nas=\"ci\",view=all " + other + " b", "control=all " + key, "view=,as=" + key + " " + key, "as=client_x " + key,
		"restrict,pty,sandbox<=workspace-write,network<=host " + key, "pty " + key, "expires=2026-12-01,max-time=1h30m,max-execs=7 " + key,
		"expires=2026-12-01T18:00:00.5+01:00 " + key, `command="/bin/echo 'a b' '' '*' *",command=/bin/true ` + key, `command="/bin/x 'a" ` + key,
		"control=all,restrict " + key, key + " alice,restrict", key + " sandbox<=read-only", key + " alice; No-Pty", key + " alice <b@c>", "max-execs=01 " + key, "expires=0001-01-01 " + key,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		clients, err := ParseAuthorizedClients("f", strings.NewReader(text))
		if err != nil {
			return
		}
		var written strings.Builder
		for _, client := range clients.All() {
			if client.Key.Kind() != Client || !strings.Contains(text, client.Key.String()) {
				t.Errorf("%v is let in, which the text does not say", client)
			}
			written.WriteString(optionsOf(client) + client.Key.String() + " " + client.Name + "\n")
		}
		again, err := ParseAuthorizedClients("f", strings.NewReader(written.String()))
		if err != nil || len(again.All()) != len(clients.All()) {
			t.Fatalf("written anew: %v", err)
		}
		for _, client := range clients.All() {
			if client.ControlAll && !client.ViewAll || strings.HasPrefix(client.As, "client_") || strings.ContainsAny(client.Name, `=<>"`) {
				t.Errorf("%+v is let in", client)
			}
			found, ok := again.Lookup(client.Key)
			found.Line = client.Line // blank lines and comments are gone
			if !ok || !cmp.Equal(found, client, cmp.AllowUnexported(PublicKey{})) {
				t.Errorf("written anew, %+v is %+v", client, found)
			}
		}
	})
}

// FuzzKnownExecutors: see FuzzAuthorizedClients.
func FuzzKnownExecutors(f *testing.F) {
	exec, relay := fixedKey(f, Executor, 1).String(), testRelay(f).String()
	for _, text := range []string{
		"", "builder " + exec + " " + relay + "\n#\nb2\t" + exec + "\t" + relay, "b " + exec, "b " + exec + " " + relay + " x",
		"b " + exec + " " + relay + "\nb " + exec + " " + relay, exec + " " + exec + " " + relay, "../x " + exec + " " + relay,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		known, err := ParseKnownExecutors("f", strings.NewReader(text))
		if err != nil {
			return
		}
		var written strings.Builder
		for _, e := range known.All() {
			written.WriteString(e.Alias + " " + e.Key.String() + " " + e.Relay.String() + "\n")
		}
		again, err := ParseKnownExecutors("f", strings.NewReader(written.String()))
		if err != nil || len(again.All()) != len(known.All()) {
			t.Fatalf("written anew: %v", err)
		}
		for _, e := range known.All() {
			if found, ok := again.Lookup(e.Alias); !ok || found != e || !strings.Contains(text, e.Key.String()) {
				t.Errorf("written anew, %v is %v", e, found)
			}
		}
	})
}
