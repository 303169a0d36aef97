package keys

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRestrictIsTheNarrowestButForWhatTheLineSaysOtherwise(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	for options, want := range map[string]func(*AuthorizedClient){
		"restrict": func(c *AuthorizedClient) { c.Rights = Rights{Sandbox: SandboxReadOnly, AnyCommand: true} },
		"sandbox<=workspace-write,pty,restrict,network<=host": func(c *AuthorizedClient) {
			c.Rights = Rights{Sandbox: SandboxWorkspaceWrite, Network: NetworkHost, Terminal: true, AnyCommand: true}
		},
		`restrict,command="/bin/x *",view=all`: func(c *AuthorizedClient) {
			c.ViewAll = true
			c.Rights = Rights{Sandbox: SandboxReadOnly, Commands: []Command{{Words: []string{"/bin/x"}, More: true}}}
		},
	} {
		expected := AuthorizedClient{Key: key, Line: 1}
		want(&expected)
		if diff := cmp.Diff(expected, lineOf(t, key, options), cmp.AllowUnexported(PublicKey{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", options, diff)
		}
	}
}

func TestRestrictAndPtyStandAlone(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1).String()
	for options, want := range map[string]string{
		"restrict=yes":           `option "restrict": want restrict alone`,
		"restrict,restrict":      "given twice",
		"restrict,pty,pty":       "given twice",
		"pty":                    "only with restrict",
		"pty,sandbox<=read-only": "only with restrict",
		"restrict,pty=yes":       `option "pty": want pty alone`,
		"control=all,restrict":   "wider than this line",
	} {
		_, err := ParseAuthorizedClients("file", strings.NewReader(options+" "+key))
		if err == nil || !strings.HasPrefix(err.Error(), "file:1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error at file:1 that says %q", options, err, want)
		}
	}
}

func TestRestrictAfterTheKeyIsRefusedRatherThanTakenForAName(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1).String()
	for _, comment := range []string{"alice restrict", "restrict", "alice pty", "restrict,pty alice", "alice,restrict", "a\trestrict"} {
		_, err := ParseAuthorizedClients("f", strings.NewReader(key+" "+comment))
		if err == nil || !strings.Contains(err.Error(), "after the key") {
			t.Errorf("%q: %v", comment, err)
		}
	}
}

func TestRestrictWidensNoLine(t *testing.T) {
	t.Parallel()
	key := fixedKey(t, Client, 1)
	rapid.Check(t, func(t *rapid.T) {
		all := anyOptions(t)
		at := rapid.IntRange(0, len(all)).Draw(t, "at")
		with, without := lineOf(t, key, slices.Insert(slices.Clone(all), at, "restrict")...), lineOf(t, key, all...)
		if !narrower(with.Rights, without.Rights) {
			t.Fatalf("with restrict %q allows more: %+v and %+v", all, with.Rights, without.Rights)
		}
	})
}
